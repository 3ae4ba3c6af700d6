//! Arguments of a call: from the model's JSON to a tool's struct, and the struct's schema.

use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ToolError;

/// Reads the arguments of `tool`. The error says which field is wrong, and never repeats the rest.
pub(crate) fn parse<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ToolError> {
    if !arguments.is_object() {
        return Err(ToolError::Invalid(format!("the arguments of {tool} have to be a JSON object")));
    }
    serde_json::from_value(arguments)
        .map_err(|error| ToolError::Invalid(format!("these are no arguments of {tool}: {error}")))
}

/// The schema of a tool's arguments, without what a model has no use for.
pub(crate) fn schema<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T);
    RecursiveTransform(|schema: &mut Schema| {
        for key in ["$schema", "title", "format"] {
            schema.remove(key);
        }
    })
    .transform(&mut schema);
    // The doc comment of the struct is for us; the tool has a description of its own.
    schema.remove("description");
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// For us.
    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        /// For the model.
        title: String,
        #[serde(default)]
        count: Option<u64>,
    }

    #[test]
    fn a_schema_holds_what_a_model_needs() {
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["title"],
            "properties": {
                "title": { "type": "string", "description": "For the model." },
                "count": { "type": ["integer", "null"], "minimum": 0, "default": null },
            },
        });
        assert_eq!(schema::<Sample>(), expected);
    }

    #[test]
    fn wrong_arguments_name_the_field() {
        let error = |arguments| parse::<Sample>("sample", arguments).unwrap_err().to_string();
        assert_eq!(error(json!([])), "the arguments of sample have to be a JSON object");
        assert!(error(json!({})).contains("missing field `title`"));
        assert!(error(json!({"title": "a", "colour": 1})).contains("unknown field `colour`"));
        assert!(error(json!({"title": "a", "count": -1})).contains("-1"));
        let null = json!({"title": "a", "count": null});
        assert_eq!(parse::<Sample>("sample", null), Ok(Sample { title: "a".to_owned(), count: None }));
    }
}
