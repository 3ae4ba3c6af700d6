//! The faults and how often each comes. Pure: a seed is a schedule.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL to a worker, with a session or without.
    KillWorker,
    /// SIGKILL to the supervisor.
    KillSupervisor,
    /// Both at the same moment.
    KillBoth,
    /// SIGKILL to a process of a tool or agent.
    KillRun,
    /// SIGKILL to somebody's `scv`.
    KillCommand,
    /// SIGKILL to the guard, then to the supervisor; the next command starts new ones.
    KillGuard,
    /// SIGTERM to a worker.
    EndWorker,
    /// SIGTERM to the supervisor; where that means that it leaves, the next command starts one.
    EndSupervisor,
    /// SIGINT to somebody's `scv`.
    InterruptCommand,
    /// Stopped for a moment.
    StopWorker,
    StopSupervisor,
    StopRun,
    StopCommand,
    /// No space on the home's disk for a moment.
    FillDisk,
    /// The file of the supervisor's socket is removed.
    RemoveSocket,
    /// The file of a worker's socket is removed: the next supervisor cannot reach it.
    RemoveLink,
    /// Connections that say nothing, nonsense, or half of something.
    Strangers,
    /// Configuration is read again.
    Reload,
    /// `scv stop`, and once nothing is left `scv start`.
    StopAndStart,
}

impl Fault {
    /// How often each comes, of a thousand.
    const WEIGHTS: [(Self, u32); 19] = [
        (Self::KillWorker, 330),
        (Self::KillSupervisor, 140),
        (Self::KillBoth, 70),
        (Self::KillRun, 140),
        (Self::KillCommand, 30),
        (Self::KillGuard, 15),
        (Self::EndWorker, 50),
        (Self::EndSupervisor, 15),
        (Self::InterruptCommand, 15),
        (Self::StopWorker, 50),
        (Self::StopSupervisor, 25),
        (Self::StopRun, 20),
        (Self::StopCommand, 10),
        (Self::FillDisk, 25),
        (Self::RemoveSocket, 15),
        (Self::RemoveLink, 10),
        (Self::Strangers, 20),
        (Self::Reload, 14),
        (Self::StopAndStart, 6),
    ];

    /// The next one.
    pub(super) fn next(random: &mut fastrand::Rng) -> Self {
        let mut number = random.u32(..1000);
        for (fault, weight) in Self::WEIGHTS {
            if number < weight {
                return fault;
            }
            number -= weight;
        }
        Self::KillWorker
    }

    /// How many processes die of it by a signal.
    pub(crate) fn kills(self) -> u64 {
        match self {
            Self::KillBoth | Self::KillGuard => 2,
            Self::KillWorker
            | Self::KillSupervisor
            | Self::KillRun
            | Self::KillCommand
            | Self::EndWorker
            | Self::EndSupervisor
            | Self::InterruptCommand => 1,
            Self::StopWorker
            | Self::StopSupervisor
            | Self::StopRun
            | Self::StopCommand
            | Self::FillDisk
            | Self::RemoveSocket
            | Self::RemoveLink
            | Self::Strangers
            | Self::Reload
            | Self::StopAndStart => 0,
        }
    }

    /// Whether there is no supervisor for a moment.
    pub(super) fn is_on_supervisor(self) -> bool {
        matches!(
            self,
            Self::KillSupervisor | Self::KillBoth | Self::KillGuard | Self::EndSupervisor | Self::StopAndStart
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_are_a_thousand_and_every_fault_comes() {
        assert_eq!(Fault::WEIGHTS.iter().map(|(_, weight)| weight).sum::<u32>(), 1000);
        let faults = || {
            let mut random = fastrand::Rng::with_seed(1);
            (0..5000).map(move |_| Fault::next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(faults(), faults());
        assert!(Fault::WEIGHTS.iter().all(|(fault, _)| faults().contains(fault)));
    }
}
