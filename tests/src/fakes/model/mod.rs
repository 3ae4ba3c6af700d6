//! A scriptable model: `POST /v1/responses` as server-sent events, `GET /v1/models`.
//!
//! It speaks enough of the Responses API for SCV and for the real Codex CLI, both at once: routes
//! tell their requests apart. It runs in a thread of its own, so a test that blocks does not stop
//! it, and writes its responses by hand, since breaking them is half of its purpose. [`Reply`]
//! says what is sent, [`Gate`] holds a reply until the test lets it go on.
//!
//! ```no_run
//! # async fn example() {
//! use scv_tests::fakes::model::{Model, Reply};
//!
//! let model = Model::start().await;
//! model.push(Reply::new().call("read", &serde_json::json!({"path": "a"})));
//! model.push(Reply::text("done"));
//! // … run SCV against `model.url()` …
//! assert_eq!(model.next_request().await.prompt(), "read a");
//! # }
//! ```

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

mod gate;
mod http;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use gate::Gate;
pub use reply::Reply;
pub use request::Request;

/// How long [`Model::next_request`] waits before it fails the test.
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

/// A running fake; it ends with its value.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    script: Arc<Script>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

type Route = Box<dyn FnMut(&Request) -> Option<Reply> + Send>;

/// What to answer, and what was asked.
struct Script {
    state: Mutex<State>,
    /// How many model requests came so far.
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    routes: Vec<Route>,
    queue: VecDeque<Reply>,
    requests: Vec<Request>,
    lookups: Vec<Request>,
    taken: usize,
}

impl Model {
    /// Starts a fake on a free port of 127.0.0.1. Without a script it refuses every request.
    ///
    /// # Panics
    /// Where no port or thread is to be had.
    #[expect(clippy::unused_async, reason = "tests call every fake in the same way")]
    pub async fn start() -> Self {
        Self::start_blocking()
    }

    /// [`Model::start`] for code without a runtime.
    ///
    /// # Panics
    /// Where no port or thread is to be had.
    pub fn start_blocking() -> Self {
        Self::serve_on(std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"))
    }

    /// Serves on a socket that is bound already, such as one of another network namespace.
    ///
    /// # Panics
    /// Where no thread is to be had.
    pub fn serve_on(listener: std::net::TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let address = listener.local_addr().expect("a bound socket has an address");
        let script = Arc::new(Script { state: Mutex::default(), count: watch::Sender::new(0) });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&script);
        let thread = std::thread::Builder::new().name("fake-model".to_owned());
        let thread = thread.spawn(move || serve(listener, &served, stopped)).expect("a thread");
        Self { address, script, stop: Some(stop), thread: Some(thread) }
    }

    /// The base URL, such as `http://127.0.0.1:4711/v1`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Answers the next request that no route takes with `reply`.
    pub fn push(&self, reply: Reply) {
        self.script.state().queue.push_back(reply);
    }

    /// Queues `replies`, one for each request that no route takes.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.state().queue.extend(replies);
    }

    /// Asks `answer` first, for every request; `None` leaves it to older routes and the queue.
    pub fn answer(&self, answer: impl FnMut(&Request) -> Option<Reply> + Send + 'static) {
        self.script.state().routes.push(Box::new(answer));
    }

    /// Answers requests for which `when` holds with `replies`, in turn.
    pub fn route(&self, when: impl Fn(&Request) -> bool + Send + 'static, replies: impl IntoIterator<Item = Reply>) {
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        self.answer(move |request| if when(request) { replies.pop_front() } else { None });
    }

    /// Every model request so far.
    #[expect(clippy::unused_async, reason = "tests call every fake in the same way")]
    pub async fn requests(&self) -> Vec<Request> {
        self.script.state().requests.clone()
    }

    /// Drops what is known of requests so far, in a run that makes very many.
    pub fn forget(&self) {
        self.script.state().requests.clear();
    }

    /// Every other request so far, such as `GET /v1/models`.
    #[expect(clippy::unused_async, reason = "tests call every fake in the same way")]
    pub async fn lookups(&self) -> Vec<Request> {
        self.script.state().lookups.clone()
    }

    /// The next model request that this method has not returned yet.
    ///
    /// # Panics
    /// When none comes within 30 s.
    pub async fn next_request(&self) -> Request {
        let mut count = self.script.count.subscribe();
        let index = {
            let mut state = self.script.state();
            state.taken += 1;
            state.taken - 1
        };
        let came = count.wait_for(|&count| count > index);
        let came = tokio::time::timeout(REQUEST_WITHIN, came).await;
        came.expect("a model request within 30 s").expect("the script lives as long as the model");
        self.script.state().requests[index].clone()
    }

    /// How many scripted replies of the queue nobody has asked for.
    pub fn unused(&self) -> usize {
        self.script.state().queue.len()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was printed already; a second one here would hide the test's own.
            let _ = thread.join();
        }
    }
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        // A route that panicked leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `request` and finds its reply.
    fn reply(&self, request: &Request) -> Reply {
        let mut state = self.state();
        if !request.is_model_request() {
            state.lookups.push(request.clone());
            return Reply::lookup(request);
        }
        state.requests.push(request.clone());
        self.count.send_replace(state.requests.len());
        // The route may use the model itself: it is called without the lock.
        let mut routes = std::mem::take(&mut state.routes);
        drop(state);
        let found = routes.iter_mut().rev().find_map(|route| route(request));
        let mut state = self.state();
        routes.append(&mut state.routes);
        state.routes = routes;
        found.or_else(|| state.queue.pop_front()).unwrap_or_else(Reply::unscripted)
    }
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").finish_non_exhaustive()
    }
}

fn serve(listener: std::net::TcpListener, script: &Arc<Script>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener).expect("a socket of this runtime");
        let accept = async {
            loop {
                let Ok((socket, _)) = listener.accept().await else {
                    // Out of descriptors: the test has them, and gives them back.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let script = Arc::clone(script);
                tokio::spawn(async move { http::serve(socket, &script).await });
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stopped => {}
        }
    });
    // Dropping the runtime drops every connection.
}
