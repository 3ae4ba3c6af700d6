//! Everything a user sees, with the real binaries; one module a feature.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod approvals;
mod attach;
mod broken;
mod cancel;
mod codex;
mod config;
mod demo;
mod disk;
mod exec;
mod exec_lost;
mod exec_turn;
mod framing;
mod golden;
mod golden_link;
mod handshake;
mod hibernation;
mod hostile;
mod kill_journal;
mod leftovers;
mod load;
mod nets;
mod provider;
mod provider_limits;
mod provider_secrets;
mod queue;
mod regressions;
mod relay;
mod renewal;
mod restart;
mod restart_kills;
mod session_start;
mod sessions_attach;
mod signals;
mod slow_clients;
mod stop;
mod structure;
mod supervisor;
mod systemd;
mod terminal;
mod tools;
mod tools_bash;
mod tools_read_write;
mod torn_journal;
mod worker_death;
