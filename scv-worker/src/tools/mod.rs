//! The tools of a session: one file a tool, one line in [`ALL`].
//!
//! A call is prepared (arguments, limits, risk), approved by somebody, and run; in that order,
//! one at a time.

mod agent;
pub(crate) mod arguments;
pub(crate) mod bash;
mod captured;
mod path_error;
pub(crate) mod read;
mod visible;
pub(crate) mod write;

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;
use shared::config::Config;
use shared::protocol::server::Risk;

use crate::agents::Agents;
pub(crate) use crate::call::{CallContext, Progress, ToolError};
use crate::provider::ToolSpec;
use crate::runs::Runs;
use crate::workspace::Workspace;

/// One tool.
pub(crate) trait Tool {
    /// What the model reads.
    fn spec(&self) -> ToolSpec;

    /// Checks a call before anybody is asked to approve it.
    fn prepare(&self, arguments: Value) -> Result<Prepared<'_>, ToolError>;
}

/// The tools of a session that has any, in the order in which the model reads them.
pub(crate) fn of_session(
    workspace: &Rc<Workspace>,
    agents: &Rc<Agents>,
    runs: &Runs,
    config: &Config,
) -> Result<Toolbox, DuplicateTool> {
    let limits = &config.tools;
    let mut tools: Vec<Box<dyn Tool>> = vec![
        Box::new(read::Read::new(workspace.clone(), limits.max_read_bytes, limits.output_limit_bytes)),
        Box::new(write::Write::new(workspace.clone(), limits.max_write_bytes)),
        Box::new(bash::Bash {
            runs: runs.clone(),
            cwd: workspace.root().to_owned(),
            limits: bash::Limits {
                default_seconds: limits.command_timeout_seconds,
                max_seconds: limits.max_timeout_seconds,
                output_bytes: limits.output_limit_bytes,
            },
        }),
    ];
    if let Some(agent) = agent::AgentTool::new(agents.clone()) {
        tools.push(Box::new(agent));
    }
    Toolbox::new(tools)
}

/// The tools that one session offers.
pub(crate) struct Toolbox {
    tools: Vec<Box<dyn Tool>>,
    specs: Rc<[ToolSpec]>,
}

impl Toolbox {
    /// A session without tools.
    pub(crate) fn none() -> Self {
        Self { tools: Vec::new(), specs: Rc::new([]) }
    }

    /// Registers `tools`; two of one name are refused, so that a call means one thing.
    pub(crate) fn new(tools: Vec<Box<dyn Tool>>) -> Result<Self, DuplicateTool> {
        let specs: Rc<[ToolSpec]> = tools.iter().map(|tool| tool.spec()).collect();
        for (place, spec) in specs.iter().enumerate() {
            if specs[..place].iter().any(|earlier| earlier.name == spec.name) {
                return Err(DuplicateTool(spec.name.clone()));
            }
        }
        Ok(Self { tools, specs })
    }

    /// What the model reads of all of them.
    pub(crate) fn specs(&self) -> Rc<[ToolSpec]> {
        self.specs.clone()
    }

    /// The tool called `name`.
    pub(crate) fn find(&self, name: &str) -> Result<&dyn Tool, ToolError> {
        self.specs.iter().position(|spec| spec.name == name).map(|place| &*self.tools[place]).ok_or_else(|| {
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            ToolError::Unknown(format!("there is no tool {name:?}; there are: {}", names.join(", ")))
        })
    }
}

/// Two tools of one name.
#[derive(Debug, thiserror::Error)]
#[error("two tools are called {0:?}")]
pub(crate) struct DuplicateTool(String);

/// A call that may run once it is approved.
pub(crate) struct Prepared<'a> {
    /// What it may do.
    pub risk: Risk,
    /// What a person decides on.
    pub summary: String,
    /// The limit in force.
    pub limit: Option<Duration>,
    /// Runs it.
    pub run: Box<dyn FnOnce(CallContext) -> LocalBoxFuture<'a, Result<Output, ToolError>> + 'a>,
}

/// What a call gives the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Output {
    /// The text; JSON objects have their fields sorted.
    pub text: String,
    /// Whether it did what was asked; a failed command is an answer, but no success.
    pub success: bool,
    /// Whether the text was cut.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A tool that is only a name.
    struct Named(&'static str);

    impl Tool for Named {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: self.0.to_owned(), description: String::new(), parameters: json!({}) }
        }

        fn prepare(&self, _: Value) -> Result<Prepared<'_>, ToolError> {
            Err(ToolError::Failed(self.0.to_owned()))
        }
    }

    fn toolbox(names: &[&'static str]) -> Result<Toolbox, DuplicateTool> {
        Toolbox::new(names.iter().map(|name| Box::new(Named(name)) as Box<dyn Tool>).collect())
    }

    #[test]
    fn a_second_tool_of_a_name_is_refused_at_registration() {
        let refused = |names| toolbox(names).err().map(|error| error.to_string());
        assert_eq!(refused(&["read", "write", "read"]), Some("two tools are called \"read\"".to_owned()));
        assert_eq!(refused(&["read", "Read"]), None);
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn a_tool_is_found_by_its_exact_name() {
        let tools = toolbox(&["read", "write"]).unwrap();
        assert_eq!(tools.find("write").unwrap().spec().name, "write");
        let unknown = tools.find("Write").map(Tool::spec).unwrap_err();
        assert_eq!(unknown.to_string(), "there is no tool \"Write\"; there are: read, write");
        assert_eq!(unknown.kind(), shared::protocol::server::ToolErrorKind::UnknownTool);
    }
}
