//! A worker that is killed at any moment of its journal: whatever was told is kept, what was cut
//! short is said once, and nothing is done twice.

use std::collections::BTreeMap;

use scv_tests::fakes::model::{Model, Reply, Request};
use scv_tests::session::{common, seq};
use scv_tests::wire::is_terminal;
use scv_tests::{Attached, Killer, Moment, TestEnv, Wire, wait};
use serde_json::{Value, json};
use uuid::Uuid;

/// The journal's writes in the whole script; more is a change of the script, less a hole in it.
const AT_LEAST: usize = 15;

/// What the model says, by what it is asked alone: any turn can be cut anywhere.
fn says(request: &Request) -> Reply {
    let prompt = request.prompt();
    let Some(run) = prompt.strip_prefix("first of ") else { return Reply::text(&format!("done: {prompt}")) };
    let outputs = request.input().iter().filter(|item| item["type"] == "function_call_output").count();
    let call = |id, name, arguments: Value| Reply::new().delta("I work.").call_as(id, name, &arguments.to_string());
    match outputs {
        0 => call("c-read", "read", json!({"path": "note.txt"})),
        1 => call("c-write", "write", json!({"path": format!("made-{run}"), "content": "x", "mode": "create"})),
        2 => call("c-bash", "bash", json!({"command": format!("echo ran >> ledger-{run}")})),
        _ => Reply::text("first done"),
    }
}

/// One session that is killed once, and what its client saw.
struct Case<'a> {
    env: &'a TestEnv,
    model: &'a Model,
    name: String,
    session: String,
    prompts: [Uuid; 2],
    live: Vec<Value>,
}

impl<'a> Case<'a> {
    fn start(env: &'a TestEnv, model: &'a Model, name: String) -> (Self, Wire) {
        let mut wire = Wire::connect(env);
        wire.initialize(&["attach", "approvals"]);
        let session = wire.session(env, &json!({"on_disconnect": "keep"}));
        let prompts = [Uuid::now_v7(), Uuid::now_v7()];
        (Self { env, model, name, session, prompts, live: Vec::new() }, wire)
    }

    fn turn_start(&self, nth: usize) -> Value {
        let text = [format!("first of {}", self.name), format!("second of {}", self.name)][nth].clone();
        json!({"type": "turn.start", "request_id": format!("prompt-{nth}"), "session_id": self.session,
            "prompt": text, "prompt_id": self.prompts[nth]})
    }

    /// Follows the script until its end or that of the connection.
    fn play(&mut self, wire: &mut Wire) {
        wire.try_send(&self.turn_start(0));
        let mut asked = None;
        let mut ends = 0;
        while let Some(event) = wire.try_event() {
            match event["type"].as_str().unwrap() {
                "approval.requested" if event["name"] == "write" => {
                    wire.try_send(&self.turn_start(1));
                    asked = Some(event.clone());
                }
                "approval.requested" => wire.resolve(&event, true),
                "queue.enqueued" => wire.resolve(asked.as_ref().unwrap(), true),
                _ => {}
            }
            ends += usize::from(is_terminal(&event));
            self.live.push(event);
            if ends == 2 {
                return;
            }
        }
    }

    fn attach(&self, after_seq: u64) -> Attached {
        Attached::to(self.env, &self.session, after_seq)
    }

    /// Everything that has to hold after the worker died once.
    fn check(self) {
        let seen = self.live.iter().filter_map(seq).max().unwrap_or(0);
        let rest = self.attach(seen);
        let whole = self.attach(0);
        let news: Vec<Value> = whole.events.iter().filter(|event| seq(event).unwrap() > seen).cloned().collect();
        self.same(&rest.events, &news, "what the client had not seen");
        self.numbers_are_never_used_twice(&whole.events);
        self.every_turn_has_one_end(&whole.events);
        let accepted = accepted(&whole.events);
        self.sent_again_it_starts_nothing(whole.wire, accepted);
        drop(rest.wire);

        // Dying again changes nothing.
        self.env.worker_of(&self.session).kill();
        let again = self.attach(0);
        self.same(&again.events, &whole.events, "the replay after a second death");
        self.waiting_prompts_wait(&again, accepted);
        self.the_conversation_is_whole(again, &whole.events, accepted);
        let ledger = std::fs::read_to_string(self.env.work().join(format!("ledger-{}", self.name)));
        let done = self.completed(&whole.events, "c-bash");
        let ran = ledger.map_or(0, |text| text.lines().count());
        assert!(ran <= 1 && (ran == 1 || !done), "{}: the command ran {ran} times", self.name);
    }

    #[track_caller]
    fn same(&self, left: &[Value], right: &[Value], what: &str) {
        let common = |events: &[Value]| events.iter().map(common).collect::<Vec<_>>();
        assert_eq!(common(left), common(right), "{}: {what}", self.name);
    }

    fn numbers_are_never_used_twice(&self, replay: &[Value]) {
        let numbers: Vec<u64> = replay.iter().filter_map(seq).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{}: {numbers:?}", self.name);
        let mut said: BTreeMap<u64, Value> = BTreeMap::new();
        for event in self.live.iter().chain(replay) {
            let Some(number) = seq(event) else { continue };
            let event = common(event);
            let before = said.insert(number, event.clone());
            assert!(before.is_none() || before.as_ref() == Some(&event), "{}: {before:?} and {event}", self.name);
        }
        for event in &self.live {
            let is_kept = !["assistant.delta", "tool.progress"].contains(&event["type"].as_str().unwrap());
            let number = seq(event).filter(|_| is_kept);
            assert!(number.is_none_or(|number| numbers.contains(&number)), "{}: lost {event}", self.name);
        }
    }

    fn every_turn_has_one_end(&self, replay: &[Value]) {
        for started in replay.iter().filter(|event| event["type"] == "turn.started") {
            let of_turn = |event: &&Value| event["turn_id"] == started["turn_id"];
            let ends: Vec<&Value> = replay.iter().filter(of_turn).filter(|event| is_terminal(event)).collect();
            assert_eq!(ends.len(), 1, "{}: {ends:?}", self.name);
            let crashed = ends[0]["code"] == "session_crashed";
            assert!(crashed || ends[0]["type"] == "turn.completed", "{}: {}", self.name, ends[0]);
            for call in ["c-read", "c-write", "c-bash"] {
                let starts = |event: &&Value| event["type"] == "tool.started" && event["call_id"] == call;
                assert!(replay.iter().filter(of_turn).filter(starts).count() <= 1, "{}: {call} twice", self.name);
            }
        }
    }

    fn sent_again_it_starts_nothing(&self, mut wire: Wire, accepted: [bool; 2]) {
        let before = wait(self.model.requests()).len();
        for nth in (0..2).filter(|nth| accepted[*nth]) {
            wire.send(&self.turn_start(nth));
            let id = json!(format!("prompt-{nth}"));
            let answer = wire.until("the answer", |event| event["request_id"] == id);
            let told = is_terminal(&answer) || answer["type"] == "queue.enqueued";
            assert!(told, "{}: {answer}", self.name);
        }
        assert_eq!(wait(self.model.requests()).len(), before, "{}: the model was asked", self.name);
    }

    fn waiting_prompts_wait(&self, attached: &Attached, accepted: [bool; 2]) {
        let taken = attached.events.iter().any(|event| event["type"] == "queue.dequeued");
        let entries = attached.queue["entries"].as_array().unwrap();
        let waits = accepted[1] && !taken;
        assert_eq!(entries.len(), usize::from(waits), "{}: {entries:?}", self.name);
        assert!(!waits || attached.queue["paused"] == json!(true), "{}: {}", self.name, attached.queue);
    }

    /// A later turn shows the model everything that was done, and a result for every call.
    fn the_conversation_is_whole(&self, attached: Attached, replay: &[Value], accepted: [bool; 2]) {
        let mut wire = attached.wire;
        wire.prompt(&self.session, &format!("go on with {}", self.name));
        let end = wire.turn().pop().unwrap();
        assert_eq!(end["type"], "turn.completed", "{}: {}", self.name, wire.report());
        let requests = wait(self.model.requests());
        let go_on = format!("go on with {}", self.name);
        let request = requests.iter().rfind(|request| request.prompt() == go_on).unwrap();
        let text = Value::from(request.input().to_vec()).to_string();
        assert_eq!(text.contains(&format!("first of {}", self.name)), accepted[0], "{}: {text}", self.name);
        for call in request.input().iter().filter(|item| item["type"] == "function_call") {
            let id = call["call_id"].as_str().unwrap();
            let output = request.output(id).unwrap_or_else(|| panic!("{}: {id} has no output: {text}", self.name));
            assert_eq!(output.starts_with("interrupted: "), !self.completed(replay, id), "{}: {output}", self.name);
        }
        let waiting = attached.queue["entries"].as_array().unwrap().len();
        wire.request(json!({"type": "session.pause", "session_id": self.session, "paused": false}));
        for _ in 0..waiting {
            let end = wire.turn().pop().unwrap();
            assert_eq!(end["type"], "turn.completed", "{}: the prompt that waited runs", self.name);
        }
        wire.request(json!({"type": "session.close", "session_id": self.session}));
        wire.until_closed();
    }

    fn completed(&self, replay: &[Value], call: &str) -> bool {
        let events = replay.iter().chain(&self.live);
        events.into_iter().any(|event| event["type"] == "tool.completed" && event["call_id"] == call)
    }
}

/// Which of the two prompts were accepted.
fn accepted(replay: &[Value]) -> [bool; 2] {
    let known = |kind: &str, nth: usize| {
        let id = json!(format!("prompt-{nth}"));
        replay.iter().any(|event| event["type"] == kind && common(event)["request_id"] == id)
    };
    [known("turn.started", 0), known("queue.enqueued", 1)]
}

fn killed_at_every_write(moment: Moment) {
    let model = Model::start_blocking();
    model.answer(|request| Some(says(request)));
    let env = TestEnv::with_model(&model.url());
    env.file("note.txt", "the door is blue\n");
    env.start();
    for nth in 1.. {
        let (mut case, mut wire) = Case::start(&env, &model, format!("{moment:?}-{nth}"));
        let worker = env.worker_of(&case.session);
        let killer = Killer::at_write(&worker, "journal.jsonl", nth, moment);
        case.play(&mut wire);
        let is_over = case.live.iter().filter(|event| is_terminal(event)).count() == 2;
        if is_over {
            worker.kill();
        }
        let writes = killer.writes();
        case.check();
        if is_over && writes < nth {
            assert!(writes >= AT_LEAST, "the script made {writes} writes only");
            break;
        }
    }
    env.finish();
}

#[test]
fn killed_just_after_any_record_a_session_comes_back_whole() {
    killed_at_every_write(Moment::After);
}

#[test]
fn killed_just_before_any_record_a_session_comes_back_whole() {
    killed_at_every_write(Moment::Before);
}
