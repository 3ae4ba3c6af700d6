//! The command line of one turn in one process. What is shown for approval is what runs.

use std::path::{Path, PathBuf};

use super::Offered;
use super::home::AgentHome;

/// The longest argument of a program (execve(2), `MAX_ARG_STRLEN` without its NUL).
pub(crate) const MAX_PROMPT_BYTES: usize = (128 << 10) - 1;

/// What a call chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choice<'a> {
    /// The task.
    pub prompt: &'a str,
    /// A model, checked.
    pub model: Option<&'a str>,
    /// An effort, checked.
    pub effort: Option<&'a str>,
    /// The program's id of the conversation to go on with.
    pub resumes: Option<&'a str>,
}

/// One start of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// Its absolute path.
    pub program: PathBuf,
    /// Its arguments; the last one holds the prompt.
    pub args: Vec<String>,
    /// Where it leaves its final message.
    pub last: Option<PathBuf>,
    /// The id that SCV chose for a new conversation.
    pub chosen: Option<String>,
}

impl Invocation {
    /// The fixed arguments, what resumes, what permits, what selects output, model and effort,
    /// and the prompt as one argument.
    pub(crate) fn new(agent: &Offered, home: &AgentHome, choice: Choice<'_>) -> Self {
        let (adapter, profile) = (agent.adapter, &agent.profile);
        let last = adapter.output_args.iter().any(|arg| arg.contains("{last}")).then(|| home.last_message());
        let resume = adapter.resume.as_ref();
        let chosen = resume
            .filter(|resume| choice.resumes.is_none() && !resume.first.is_empty())
            .map(|_| uuid::Uuid::now_v7().to_string());
        let (early, late) = match (resume, choice.resumes) {
            (Some(resume), Some(_)) => (resume.early, resume.late),
            (Some(resume), None) => (&[][..], resume.first),
            (None, _) => (&[][..], &[][..]),
        };
        let id = choice.resumes.or(chosen.as_deref()).unwrap_or_default();
        let mut args = profile.args.clone();
        let mut add = |list: &[&str], name: &str, value: &str| {
            args.extend(
                list.iter().map(|arg| if name.is_empty() { (*arg).to_owned() } else { arg.replace(name, value) }),
            );
        };
        add(early, "{id}", id);
        if agent.is_full() {
            add(adapter.full.args, "", "");
        }
        add(adapter.output_args, "{last}", &last.as_deref().map(Path::to_string_lossy).unwrap_or_default());
        for (list, name, value) in
            [(&profile.model_args, "{model}", choice.model), (&profile.effort_args, "{effort}", choice.effort)]
        {
            if let Some(value) = value {
                add(&list.iter().map(String::as_str).collect::<Vec<_>>(), name, value);
            }
        }
        add(late, "{id}", id);
        args.extend(profile.prompt_args.iter().cloned());
        args.push(prompt_argument(adapter.subcommands, choice));
        Self { program: agent.program.clone(), args, last, chosen }
    }
}

/// A prompt that is one of the program's commands gets a line end, so that it is read as a prompt.
fn prompt_argument(subcommands: &[&str], choice: Choice<'_>) -> String {
    let command = choice.resumes.is_none() && subcommands.contains(&choice.prompt);
    if command { format!("{}\n", choice.prompt) } else { choice.prompt.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::adapters;
    use shared::config::{Config, Permissions};

    fn args(full: bool, choice: Choice<'_>) -> Vec<String> {
        let adapter = adapters::find("codex").unwrap();
        let mut profile = Config::default().agents["codex"].clone();
        profile.permissions = if full { Permissions::Full } else { Permissions::Default };
        let agent = Offered { adapter, profile, program: "/bin/codex".into() };
        let dir = tempfile::tempdir().unwrap();
        let home = AgentHome::new(&shared::layout::Layout::open(dir.path()).unwrap(), "codex");
        let invocation = Invocation::new(&agent, &home, choice);
        let last = invocation.last.unwrap();
        assert_eq!(last.parent(), Some(home.tmp().as_path()));
        let last = last.to_str().unwrap().to_owned();
        invocation.args.into_iter().map(|arg| arg.replace(&last, "FILE")).collect()
    }

    #[test]
    fn the_command_lines_are_those_of_the_contract() {
        let choice = Choice { prompt: "do it; $(x) \"y\"", ..Choice::default() };
        assert_eq!(args(false, choice), ["exec", "--json", "-o", "FILE", "do it; $(x) \"y\""]);
        assert_eq!(
            args(true, Choice { model: Some("m"), effort: Some("high"), ..choice }),
            [
                "exec",
                "--dangerously-bypass-approvals-and-sandbox",
                "-c",
                "web_search=\"live\"",
                "--json",
                "-o",
                "FILE",
                "-m",
                "m",
                "-c",
                "model_reasoning_effort=\"high\"",
                "do it; $(x) \"y\""
            ]
        );
        assert_eq!(
            args(false, Choice { resumes: Some("id"), model: Some("m"), ..choice }),
            ["exec", "resume", "--json", "-o", "FILE", "-m", "m", "id", "do it; $(x) \"y\""]
        );
    }

    #[test]
    fn a_prompt_is_never_read_as_a_command() {
        let choice = Choice { prompt: "review", ..Choice::default() };
        assert_eq!(args(false, choice).pop().unwrap(), "review\n");
        assert_eq!(args(false, Choice { resumes: Some("id"), ..choice }).pop().unwrap(), "review");
    }
}
