//! What the approval policy says about one call. Asking, waiting and telling are not done here.
//!
//! A client that approves every request unasked (`auto_approve`: `scv exec --yes`, the channel of
//! an account's owner) is somebody who answers, at once; its answer comes after the policy and
//! never instead of it.

pub(crate) use shared::config::ApprovalPolicy as Policy;
use shared::protocol::server::Risk;

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It runs.
    Allow,
    /// Somebody decides.
    Ask,
    /// It does not run. The reason is for people and the model, and never claims that a person
    /// said no.
    Deny(String),
}

/// Decides on a call of `risk`.
pub(crate) fn decide(policy: Policy, risk: Risk) -> Verdict {
    match (policy, risk) {
        (Policy::OnRisk | Policy::Never, Risk::ReadOnly) => Verdict::Allow,
        (Policy::OnRisk | Policy::Always, _) => Verdict::Ask,
        (Policy::Never, _) => Verdict::Deny("denied: the approval policy is never; nobody was asked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RISKY: [Risk; 5] = [Risk::Filesystem, Risk::Process, Risk::Delegate, Risk::Network, Risk::Unknown];

    #[test]
    fn every_policy_decides_every_risk() {
        let never = Verdict::Deny("denied: the approval policy is never; nobody was asked".to_owned());
        // policy, reading, everything else
        let table = [
            (Policy::OnRisk, Verdict::Allow, Verdict::Ask),
            (Policy::Always, Verdict::Ask, Verdict::Ask),
            (Policy::Never, Verdict::Allow, never),
        ];
        for (policy, reading, rest) in table {
            assert_eq!(decide(policy, Risk::ReadOnly), reading, "{policy:?}, reading");
            for risk in RISKY {
                assert_eq!(decide(policy, risk), rest, "{policy:?}, {risk:?}");
            }
        }
    }
}
