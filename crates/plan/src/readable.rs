//! Objects as our types: what users wrote may fit the schema of another version, and not ours.
//! Comes in: a part of an object as it is stored; goes out: the typed part, or where and why it cannot be read. No value is
//! told, as one of them may be a secret.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// As `spec.workload.replicas`.
    pub path: String,
    /// As `invalid type: string (a value), expected i32`.
    pub cause: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.cause)
    }
}

/// `at` is where in the object the part is, as `spec`.
pub fn read<T: DeserializeOwned>(part: &Value, at: &str) -> Result<T, Unreadable> {
    // Looking for the place takes time, and hardly ever has to be done.
    T::deserialize(part).or_else(|_| serde_path_to_error::deserialize(part)).map_err(|error| {
        let inside = error.path().to_string();
        // The library's word for the part as a whole.
        let path = if inside == "." { at.to_owned() } else { format!("{at}.{inside}") };
        Unreadable { path, cause: without_values(&error.inner().to_string()) }
    })
}

const A_VALUE: &str = "(a value)";

/// The JSON library quotes what it met: texts in quotation marks, numbers and unknown words as it quotes names of fields. What
/// is in the marks may have such marks of its own, so that the last one counts.
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
        text if text.starts_with("unknown variant ") => met('`', "").map(|told| told.replacen("variant ", "word", 1)),
        _ => None,
    };
    let message = quoted.as_deref().unwrap_or(message);
    // In words of our own types.
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

    fn told(part: Value) -> String {
        read::<Part>(&part, "spec").unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place_and_without_its_value() {
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
            (json!({ "mode": "s3`cret" }), "spec.mode: unknown word, expected `fast` or `slow`"),
            (json!({ "mode": 5 }), "spec.mode: invalid type: integer (a value), expected string or map"),
            (json!({ "name": null }), "spec.name: invalid type: null, expected a string"),
            (json!({ "name": "n", "needed": { "replicas": 1 } }), "spec.needed: missing field `name`"),
            (json!({}), "spec: missing field `name`"),
            (Value::Null, "spec: invalid type: null, expected struct Part"),
        ] {
            assert_eq!(told(part.clone()), wanted, "{part}");
        }
        assert_eq!(read::<Part>(&json!({ "name": "n" }), "spec").unwrap().name, "n");
    }

    #[test]
    fn words_of_our_own_types_are_told_without_what_they_quote() {
        assert_eq!(without_values("must be \"a\" or \"b\" here"), "must be (a value) here");
        assert_eq!(without_values("must be one of these"), "must be one of these");
    }
}
