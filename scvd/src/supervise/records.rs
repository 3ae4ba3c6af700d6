//! Records of delegations: written by workers before a run starts, read and cleared here.

use shared::layout::Layout;
use shared::process::Identity;
use shared::registry::{Delegation, Delegations};
use tracing::warn;

/// All records that can be read. Those that cannot stay where they are, for a person to look at.
pub(crate) fn records(layout: &Layout) -> Vec<Delegation> {
    match Delegations::new(layout).list() {
        Ok(listing) => listing.records,
        Err(cause) => {
            warn!("cannot read {}: {cause}", layout.delegations().display());
            Vec::new()
        }
    }
}

/// Removes the records of an owner that is gone.
pub(super) fn remove_of(layout: &Layout, owner: &Identity) {
    for record in records(layout).iter().filter(|record| record.owner == *owner) {
        remove(layout, record);
    }
}

/// Removes one record: nothing of its run is left.
pub(super) fn remove(layout: &Layout, record: &Delegation) {
    if let Err(cause) = Delegations::new(layout).remove(&record.handle) {
        warn!("cannot remove the record of {}: {cause}", record.handle);
    }
}
