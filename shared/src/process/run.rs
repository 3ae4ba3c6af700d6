//! One program with everything that comes of it, from its start to the end of its last process.
//!
//! The leader has a group of its own, but the group is not the boundary: members leave it with
//! `setsid`. What counts is the tree below the leader, and below the children that this process
//! (a subreaper) adopted and that carry the run's tag. The leader stays uncollected until the run
//! has ended, so that neither its pid nor its group's number can be anybody else's before.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::cgroup::Cgroup;
use super::children::{Seen, seen_tree};
use super::end::{self, Ended, Group, Look, Whole};
use super::exit::Exit;
use super::family::Family;
use super::identity::Identity;
use super::tag::Tag;
use super::{GRACE, sys};

/// A run's processes are killed before SCV's own when memory runs out (proc(5): -1000 to 1000).
const OOM_SCORE: u32 = 300;

/// From the last sight of a killed leader to its exit status.
const EXIT_WITHIN: Duration = Duration::from_secs(1);

/// What to start.
#[derive(Debug)]
pub struct Start {
    /// The program; an absolute path is not looked up.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it works.
    pub cwd: PathBuf,
    /// Its whole environment, to which the tag's variables are added.
    pub env: Vec<(OsString, OsString)>,
    /// Its standard input.
    pub stdin: Stdio,
    /// Its standard output.
    pub stdout: Stdio,
    /// Its standard error.
    pub stderr: Stdio,
    /// Who it is.
    pub tag: Tag,
}

/// How to end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its leader is done; what it left gets SIGTERM and [`GRACE`], then SIGKILL.
    Finished,
    /// SIGTERM to all of it, then SIGKILL to what is left after `grace`.
    Terminate {
        /// How long.
        grace: Duration,
    },
    /// SIGKILL to all of it, at once.
    Kill,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The leader's exit.
    pub exit: Exit,
    /// Other processes of the run that had to be ended.
    pub left: Vec<Ended>,
    /// How many processes the kernel killed meanwhile because memory ran out. Where runs share
    /// this process's memory limit they share the number.
    pub oom_kills: u64,
}

impl RunEnd {
    /// That memory ran out, in words, if it did.
    pub fn out_of_memory(&self) -> Option<String> {
        let whom = match self.oom_kills {
            0 => return None,
            1 => "a process".to_owned(),
            many => format!("{many} processes"),
        };
        Some(format!("memory ran out meanwhile, and the kernel killed {whom} of this session"))
    }
}

/// A run. Dropped without [`Run::end`], it is abandoned: all of it gets SIGKILL at once.
#[derive(Debug)]
pub struct Run {
    family: Family,
    tag: Tag,
    /// Where the kernel keeps all of it together.
    cgroup: Option<Cgroup>,
    id: Identity,
    group: Pid,
    exits: AsyncFd<OwnedFd>,
    /// What [`Family::oom_kills`] was before.
    oom_kills: Option<u64>,
    exit: Option<Exit>,
    /// `None` once the run has ended.
    child: Option<Child>,
}

impl Run {
    /// Starts it in a process group of its own. Needs a runtime.
    pub fn start(family: &Family, start: Start) -> io::Result<Self> {
        let Start { program, args, cwd, env, stdin, stdout, stderr, tag } = start;
        let mut command = Command::new(program);
        command.args(args).current_dir(cwd).env_clear().envs(env).envs(tag.variables());
        command.stdin(stdin).stdout(stdout).stderr(stderr).process_group(0);
        let oom_kills = family.oom_kills();
        let mut child = family.spawn_tagged(&mut command, Some(&tag))?;
        let pid = child.id().map_or(0, u32::cast_signed);
        match watch(pid) {
            Ok((id, group, exits)) => {
                // Best effort, and raising it is always allowed.
                let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE.to_string());
                let cgroup = family.cgroup_of(&tag);
                let family = family.clone();
                Ok(Self { family, tag, cgroup, id, group, exits, oom_kills, exit: None, child: Some(child) })
            }
            Err(error) => {
                // No descriptor is left, as a rule. What was started must not stay.
                let _ = child.start_kill();
                family.abandon(child, pid, tag);
                Err(error)
            }
        }
    }

    /// The leader's pid, which is its group's number too.
    pub fn pid(&self) -> i32 {
        self.id.pid
    }

    /// The leader.
    pub fn identity(&self) -> &Identity {
        &self.id
    }

    /// Who the run is.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// The pipe to its standard input, if it is one and was not taken.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.as_mut()?.stdin.take()
    }

    /// The pipe from its standard output, if it is one and was not taken.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.as_mut()?.stdout.take()
    }

    /// The pipe from its standard error, if it is one and was not taken.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.as_mut()?.stderr.take()
    }

    /// Returns once the leader has exited; others of the run may live on. Cancel-safe.
    pub async fn exited(&mut self) -> Exit {
        while self.exit.is_none() {
            self.exit = self.look_at_exit();
            if self.exit.is_none()
                && let Ok(mut ready) = self.exits.readable().await
            {
                ready.clear_ready();
            }
        }
        self.exit.unwrap_or_default()
    }

    /// The leader's exit, without collecting it.
    fn look_at_exit(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::PidFd(self.exits.get_ref().as_fd()), options) {
            Ok(status) => status.map(Exit::from),
            // Somebody else collected it: gone, and nobody can say how.
            Err(_) => Some(Exit::default()),
        }
    }

    /// Ends all of it. Every path of a run goes through here, or through `drop`.
    pub async fn end(mut self, how: End) -> RunEnd {
        let grace = match how {
            End::Finished => GRACE,
            End::Terminate { grace } => grace,
            End::Kill => Duration::ZERO,
        };
        let all = Whole { group: Some(Group(self.group)), cgroup: self.cgroup.as_ref() };
        let mut left = end::end(|| self.look(), all, grace).await;
        left.retain(|ended| ended.pid != self.id.pid);
        // It has exited, or hangs in the kernel and was given up above: then it is abandoned.
        let Ok(exit) = tokio::time::timeout(EXIT_WITHIN, self.exited()).await else {
            return RunEnd { exit: Exit::default(), left, oom_kills: self.new_oom_kills() };
        };
        if let Some(mut child) = self.child.take() {
            self.family.collect(&mut child, self.id.pid, &self.tag);
        }
        self.family.reap_adopted();
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.remove()
        {
            tracing::warn!(%error, run = cgroup.name(), "cannot remove the cgroup of a run");
        }
        RunEnd { exit, left, oom_kills: self.new_oom_kills() }
    }

    fn new_oom_kills(&self) -> u64 {
        let both = self.oom_kills.zip(self.family.oom_kills());
        both.map_or(0, |(before, now)| now.saturating_sub(before))
    }

    /// What lives of the run.
    fn look(&self) -> Look {
        // The leader is a zombie or alive; either way the pid is its own. It comes first: what
        // comes up when it dies is among the strays then.
        let mut living = seen_tree(&[self.id.pid]);
        let strays = self.family.strays(|id| self.family.is_of(id, &self.tag));
        living.extend(strays.living);
        if let Some(cgroup) = &self.cgroup {
            let known: HashSet<i32> = living.iter().map(|seen| seen.id.pid).collect();
            living.extend(cgroup.processes().into_iter().filter(|pid| !known.contains(pid)).filter_map(Seen::of));
        }
        Look { living, moved: strays.moved }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            let all = Whole { group: Some(Group(self.group)), cgroup: self.cgroup.as_ref() };
            end::kill_now(|| self.look(), all);
            self.family.abandon(child, self.id.pid, self.tag.clone());
        }
    }
}

fn watch(pid: i32) -> io::Result<(Identity, Pid, AsyncFd<OwnedFd>)> {
    let id = Identity::of(pid)?;
    let group = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    let exits = sys::watch(id.pidfd()?, Interest::READABLE)?;
    Ok((id, group, exits))
}
