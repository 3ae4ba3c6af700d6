//! What a person types for an id: all of it, or a start that nothing else has.

use crate::error::CliError;

/// The shortest start that is taken.
const SHORTEST: usize = 4;

/// A kind of thing with ids.
#[derive(Debug)]
pub(super) struct Kind {
    noun: &'static str,
    lists: &'static str,
}

/// Sessions.
pub(super) const SESSION: Kind = Kind { noun: "session", lists: "scv sessions ls --all" };

/// Open approvals.
pub(super) const APPROVAL: Kind = Kind { noun: "open approval", lists: "scv approvals ls" };

impl Kind {
    /// The one of `ids` that begins with `start`.
    pub(super) fn find<'a>(&self, start: &str, ids: &[&'a str]) -> Result<&'a str, CliError> {
        let Self { noun, lists } = self;
        let hint = format!("`{lists}` lists them");
        if start.len() < SHORTEST {
            return Err(CliError::usage(format!("{start} is too short for the id of one {noun}")).hint(hint));
        }
        let found: Vec<&&str> = ids.iter().filter(|id| id.starts_with(start)).collect();
        match found[..] {
            [id] => Ok(id),
            [] => Err(CliError::failed(format!("there is no {noun} {start}")).hint(hint)),
            _ => Err(CliError::usage(format!("more than one {noun} starts with {start}")).hint(hint)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_of_an_id_has_to_be_unique() {
        let ids = ["0199-a", "0199-b", "02aa-c"];
        let told = |start| SESSION.find(start, &ids).unwrap_err().what;
        assert_eq!(SESSION.find("02aa", &ids).unwrap(), "02aa-c");
        assert_eq!(SESSION.find("0199-a", &ids).unwrap(), "0199-a");
        assert_eq!(told("0199"), "more than one session starts with 0199");
        assert_eq!(told("0333"), "there is no session 0333");
        assert_eq!(told("0"), "0 is too short for the id of one session");
    }
}
