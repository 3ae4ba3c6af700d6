//! Who decides on a call: the policy, or a person.

mod broker;
mod decide;

pub(crate) use broker::{Broker, NOBODY, Patience, Waiting, denial};
pub(crate) use decide::{Verdict, decide};

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Go on.
    Approved,
    /// Do not; the text says who said so and is for the model.
    Denied(String),
}
