//! Decodes a part of a stored object into one of our types. An error names the field and never a value: the value may be a
//! secret.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use crate::FieldPath;

/// The path and cause of a value that does not fit its type. The object may be stored under the schema of another
/// version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct DecodeError {
    /// For example `spec.workload.replicas`.
    pub path: FieldPath,
    /// For example `invalid type: string (a value), expected i32`.
    pub cause: String,
}

/// `at` is the path of the part, such as `spec`.
pub fn decode<T: DeserializeOwned>(part: &Value, at: &str) -> Result<T, DecodeError> {
    // Tracking the path is slow, so it is done only after a first failure.
    T::deserialize(part).or_else(|_| serde_path_to_error::deserialize(part)).map_err(|error| {
        let path = error.path().iter().fold(FieldPath::default().field(at.to_owned()), |path, segment| match segment {
            Segment::Seq { index } => path.index(*index),
            Segment::Map { key } => path.field(key.clone()),
            Segment::Enum { variant } => path.field(variant.clone()),
            Segment::Unknown => path.field("?"),
        });
        DecodeError { path, cause: without_values(&error.inner().to_string()) }
    })
}

const A_VALUE: &str = "(a value)";

/// Removes quoted input from a message of serde_json, which puts strings in quotation marks, and numbers and unknown variants
/// in backticks. The input may contain such marks itself, so the last one counts.
fn without_values(message: &str) -> String {
    let met = |mark: char, instead: &str| {
        let (head, tail) = message.rsplit_once(", expected ")?;
        let (what, _) = head.split_once(mark)?;
        Some(format!("{what}{instead}, expected {tail}"))
    };
    let quoted = match message {
        text if text.starts_with("invalid type: string ") || text.starts_with("invalid value: string ") => {
            met('"', A_VALUE)
        }
        text if text.starts_with("invalid ") => met('`', A_VALUE),
        text if text.starts_with("unknown variant ") => met('`', "").map(|text| text.replacen("variant ", "value", 1)),
        _ => None,
    };
    let message = quoted.as_deref().unwrap_or(message);
    // Messages of our own `Deserialize` implementations.
    match (message.find('"'), message.rfind('"')) {
        (Some(first), Some(last)) if first < last => format!("{}{A_VALUE}{}", &message[..first], &message[last + 1..]),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    struct Part {
        #[serde(default)]
        replicas: Option<i32>,
        #[serde(default)]
        mode: Option<Mode>,
        #[serde(default)]
        env: Vec<BTreeMap<String, String>>,
        needed: Option<Box<Part>>,
        name: String,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Fast,
        Slow,
    }

    fn message(part: Value) -> String {
        decode::<Part>(&part, "spec").unwrap_err().to_string()
    }

    #[test]
    fn decode_error_has_path_and_no_value() {
        for (part, wanted) in [
            (json!({ "replicas": "s3cret" }), "spec.replicas: invalid type: string (a value), expected i32"),
            (json!({ "replicas": "a\"s3cret" }), "spec.replicas: invalid type: string (a value), expected i32"),
            (
                json!({ "replicas": "`s3cret, expected " }),
                "spec.replicas: invalid type: string (a value), expected i32",
            ),
            (json!({ "replicas": 5.25 }), "spec.replicas: invalid type: floating point (a value), expected i32"),
            (json!({ "replicas": 1_u64 << 40 }), "spec.replicas: invalid value: integer (a value), expected i32"),
            (
                json!({ "env": [{ "A": "b" }, { "PASSWORD": 1234 }] }),
                "spec.env[1].PASSWORD: invalid type: integer (a value), expected a string",
            ),
            (json!({ "mode": "s3`cret" }), "spec.mode: unknown value, expected `fast` or `slow`"),
            (json!({ "mode": 5 }), "spec.mode: invalid type: integer (a value), expected string or map"),
            (json!({ "name": null }), "spec.name: invalid type: null, expected a string"),
            (json!({ "name": "n", "needed": { "replicas": 1 } }), "spec.needed: missing field `name`"),
            (json!({}), "spec: missing field `name`"),
            (Value::Null, "spec: invalid type: null, expected struct Part"),
        ] {
            assert_eq!(message(part.clone()), wanted, "{part}");
        }
        assert_eq!(decode::<Part>(&json!({ "name": "n" }), "spec").unwrap().name, "n");
    }

    #[test]
    fn quoted_text_of_own_messages_is_removed() {
        assert_eq!(without_values("must be \"a\" or \"b\" here"), "must be (a value) here");
        assert_eq!(without_values("must be one of these"), "must be one of these");
    }
}
