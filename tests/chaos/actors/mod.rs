//! Who uses the instance: users with sessions, watchers of other people's, and commands.

mod command;
mod connection;
mod hears;
mod plan;
mod user;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::truth::Truth;
use crate::world::World;

/// Nobody is without a supervisor, or a session without an answer, for longer than this.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(30);

/// What every actor acts on.
#[derive(Clone)]
pub(crate) struct Stage {
    pub world: Arc<dyn World>,
    pub truth: Arc<Truth>,
}

/// One actor, in a thread.
pub(crate) struct Actor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the driver and an actor's thread share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    rest: AtomicBool,
    busy: AtomicUsize,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn rests(&self) -> bool {
        self.rest.load(Ordering::SeqCst)
    }

    fn busy(&self, with: usize) {
        self.busy.store(with, Ordering::SeqCst);
    }
}

impl Actor {
    fn start(live: impl FnOnce(Arc<Shared>) + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        Self { shared, thread: Some(std::thread::spawn(move || live(theirs))) }
    }

    /// Whether it begins nothing new.
    pub(crate) fn rest(&self, rests: bool) {
        self.shared.rest.store(rests, Ordering::SeqCst);
    }

    /// How much it waits for.
    pub(crate) fn busy(&self) -> usize {
        self.shared.busy.load(Ordering::SeqCst)
    }

    /// Asks it to end.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }

    /// Waits for its end.
    pub(crate) fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Starts `users` users, a watcher for every three and a command for every four of them.
pub(crate) fn start(stage: &Stage, users: usize, random: &mut fastrand::Rng) -> Vec<Actor> {
    let mut actors = Vec::new();
    for number in 0..users {
        let (stage, random) = (stage.clone(), random.fork());
        actors.push(Actor::start(move |shared| user::User::new(number, stage, random, shared).live()));
    }
    for number in 0..users / 3 {
        let (stage, random) = (stage.clone(), random.fork());
        actors.push(Actor::start(move |shared| watcher::live(number, &stage, random, &shared)));
    }
    for number in 0..users / 4 {
        let (stage, random) = (stage.clone(), random.fork());
        actors.push(Actor::start(move |shared| command::live(number, &stage, random, &shared)));
    }
    actors
}
