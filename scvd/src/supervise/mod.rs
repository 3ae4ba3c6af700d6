//! The workers: each is a process with a state ([`state`]), a link and a bundle on disk.
//!
//! Decisions are in `state` (what a worker may become) and `tally` (who may be started again);
//! [`apply`] carries out what they say. What a session does is no business of this module.

mod act;
mod adopt;
mod claim;
mod end;
mod exits;
mod greet;
mod life;
mod link;
mod offer;
mod orphans;
mod program;
mod records;
mod renew;
mod state;
mod table;
mod tally;

use act::apply;
pub(crate) use act::greet_again;
pub(crate) use adopt::{adopt, bundles, pass_verdicts, sweep};
pub(crate) use claim::{Unavailable, claim, resume};
pub(crate) use end::{end_a_spare, end_all, end_session, kill_run, settled};
pub(crate) use life::{reap_forever, spawn};
pub(crate) use link::{Answer, Offer};
pub(crate) use offer::{NoAnswer, is_buried, offer};
pub(crate) use orphans::{Depth, Strangers, end_orphans};
pub(crate) use program::Program;
pub(crate) use records::records;
pub(crate) use renew::renew;
pub(crate) use state::State;
pub(crate) use table::Workers;
pub(crate) use tally::{Tally, Verdict, Who};
