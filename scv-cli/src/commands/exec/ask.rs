//! Approvals: answered by a flag, by the person at the terminal, or, without either, denied.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use shared::protocol::client::ApprovalResolve;
use shared::protocol::server::ApprovalRequest;
use shared::protocol::{ClientMessage, SessionId};
use shared::text;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use crate::output::printable;

/// More is no answer (a canonical terminal's line has 4096 bytes at most, termios(3)).
const ANSWER_BYTES: usize = 4096;

/// What the model reads of a denial that no person gave.
const NOBODY: &str = "nobody could be asked: there is no terminal; it was not the user who said no";

/// A question that a turn asks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// The session that asks.
    pub session_id: SessionId,
    /// What it asks.
    pub request: ApprovalRequest,
}

/// An answer, and who gave it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    question: Question,
    approved: bool,
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Flag,
    Person,
    Nobody,
}

impl Question {
    /// The answer that needs no person.
    pub(super) fn without_asking(&self, yes: bool, terminal: bool) -> Option<Answer> {
        let (approved, by) = match (yes, terminal) {
            (true, _) => (true, By::Flag),
            (false, true) => return None,
            (false, false) => (false, By::Nobody),
        };
        Some(Answer { question: self.clone(), approved, by })
    }

    /// The question as a person reads it.
    fn told(&self) -> String {
        let ApprovalRequest { name, risk, cwd, summary, .. } = &self.request;
        let risk = serde_json::to_value(risk).ok().and_then(|risk| risk.as_str().map(String::from));
        let head = format!("{name} ({}) in {}", risk.unwrap_or_default(), cwd.display());
        let lines =
            std::iter::once(format!("approval needed: {head}")).chain(summary.lines().map(|line| format!("  {line}")));
        printable(&(lines.collect::<Vec<_>>().join("\n") + "\n"))
    }
}

impl Answer {
    /// One line that says what was answered without a person.
    pub(super) fn told(&self) -> String {
        let ApprovalRequest { name, summary, .. } = &self.question.request;
        let what = printable(&text::one_line(&format!("{name}: {summary}"), 200));
        match self.by {
            By::Flag => format!("approved (--yes): {what}"),
            By::Nobody => {
                format!("denied: {what}\n  there is no terminal to ask on; `--yes` approves, a terminal asks")
            }
            By::Person => String::new(),
        }
    }

    /// The answer as it goes to the server.
    pub(super) fn message(self, request_id: String) -> ClientMessage {
        ClientMessage::ApprovalResolve(ApprovalResolve {
            request_id,
            session_id: self.question.session_id,
            approval_id: self.question.request.approval_id,
            approved: self.approved,
            reason: (self.by == By::Nobody).then(|| NOBODY.to_owned()),
        })
    }
}

/// The person at the terminal, if there is one.
pub(super) struct Terminal {
    tty: Option<Receiver>,
    questions: VecDeque<Question>,
    typed: Vec<u8>,
}

impl Terminal {
    /// The controlling terminal, where stderr is one: a question has to be seen to be answered.
    pub(super) fn open() -> Self {
        let open = || {
            // A description of its own: not blocking must not spill over to other programs.
            let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
            OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open("/dev/tty")
        };
        let tty = if io::stderr().is_terminal() { open().ok() } else { None };
        Self {
            // A terminal reads like a pipe, and this is the safe way to have the runtime wait for one.
            tty: tty.and_then(|tty| Receiver::from_file_unchecked(tty).ok()),
            questions: VecDeque::new(),
            typed: Vec::new(),
        }
    }

    /// Whether somebody can be asked.
    pub(super) fn is_there(&self) -> bool {
        self.tty.is_some()
    }

    /// Whether a question is open.
    pub(super) fn is_asking(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Asks, after the questions that are open.
    pub(super) fn ask(&mut self, question: Question) {
        self.questions.push_back(question);
        if self.questions.len() == 1 {
            self.show();
        }
    }

    /// Takes a question back: somebody else answered it, or its time is over.
    pub(super) fn withdraw(&mut self, approval_id: &str) {
        let is_shown = self.questions.front().is_some_and(|question| question.request.approval_id == approval_id);
        self.questions.retain(|question| question.request.approval_id != approval_id);
        if is_shown {
            prompt("\n(no longer asked)\n");
            self.show();
        }
    }

    /// Takes all questions back: the turn is being cancelled.
    pub(super) fn forget(&mut self) {
        if !self.questions.is_empty() {
            self.questions.clear();
            prompt("\n");
        }
    }

    /// The next answer; never without a question. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Answer {
        let (Some(tty), false) = (&mut self.tty, self.questions.is_empty()) else {
            return std::future::pending().await;
        };
        let approved = loop {
            if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                break is_yes(&self.typed[..end]);
            }
            let mut chunk = [0; 256];
            match tty.read(&mut chunk).await {
                Ok(read) if read > 0 && self.typed.len() + read <= ANSWER_BYTES => {
                    self.typed.extend_from_slice(&chunk[..read]);
                }
                // Ctrl+D, a terminal that is gone, or more than any answer has: no.
                _ => break false,
            }
        };
        self.typed.clear();
        let question = self.questions.pop_front();
        self.show();
        match question {
            Some(question) => Answer { question, approved, by: By::Person },
            None => std::future::pending().await,
        }
    }

    fn show(&mut self) {
        let (Some(tty), Some(question)) = (&self.tty, self.questions.front()) else { return };
        // What was typed before the question was seen is no answer to it.
        let _ = rustix::termios::tcflush(tty, rustix::termios::QueueSelector::IFlush);
        self.typed.clear();
        prompt(&format!("{}allow? [y/N] ", question.told()));
    }
}

fn prompt(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn is_yes(line: &[u8]) -> bool {
    matches!(line.trim_ascii().to_ascii_lowercase().as_slice(), b"y" | b"yes")
}

#[cfg(test)]
mod tests {
    use shared::protocol::server::Risk;

    use super::*;

    fn question() -> Question {
        let request = ApprovalRequest {
            approval_id: "a".into(),
            call_id: "c".into(),
            name: "bash".into(),
            risk: Risk::Process,
            cwd: "/w".into(),
            summary: "Run \x1b[2Jrm -rf build\nin the workspace".into(),
            expires_unix_ms: None,
        };
        Question { session_id: SessionId::new(), request }
    }

    #[test]
    fn a_flag_approves_a_terminal_asks_and_nobody_denies() {
        let answer = |yes, terminal| question().without_asking(yes, terminal).map(|answer| answer.approved);
        assert_eq!(answer(true, true), Some(true));
        assert_eq!(answer(true, false), Some(true));
        assert_eq!(answer(false, true), None);
        assert_eq!(answer(false, false), Some(false));
    }

    #[test]
    fn a_question_shows_all_of_its_summary_and_none_of_its_escapes() {
        assert_eq!(
            question().told(),
            "approval needed: bash (process) in /w\n  Run \u{fffd}[2Jrm -rf build\n  in the workspace\n"
        );
    }

    #[test]
    fn a_denial_says_that_nobody_was_asked() {
        let told = question().without_asking(false, false).unwrap().told();
        assert!(told.starts_with("denied: bash: Run") && told.contains("no terminal"), "{told}");
    }

    #[test]
    fn the_model_learns_whether_it_was_a_person_who_said_no() {
        let reason = |answer: Answer| match answer.message("r".into()) {
            ClientMessage::ApprovalResolve(resolve) => resolve.reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(reason(question().without_asking(false, false).unwrap()).as_deref(), Some(NOBODY));
        assert_eq!(reason(Answer { question: question(), approved: false, by: By::Person }), None);
    }

    #[test]
    fn only_a_yes_is_a_yes() {
        assert!(is_yes(b"y\n") && is_yes(b" YES \n"));
        assert!(!is_yes(b"\n") && !is_yes(b"yep\n") && !is_yes(b"n\n"));
    }
}
