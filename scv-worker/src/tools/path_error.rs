//! A path that cannot be used, as the model hears of it.

use std::error::Error as _;

use super::ToolError;
use crate::workspace::PathError;

impl From<PathError> for ToolError {
    fn from(error: PathError) -> Self {
        let text = match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        match error {
            PathError::Unusable | PathError::TooLong(_) | PathError::Absolute { .. } | PathError::Outside(_) => {
                Self::Invalid(text)
            }
            PathError::Missing(_)
            | PathError::Directory(_)
            | PathError::NotDirectory(_)
            | PathError::NotRegular { .. }
            | PathError::Io { .. } => Self::Failed(text),
        }
    }
}
