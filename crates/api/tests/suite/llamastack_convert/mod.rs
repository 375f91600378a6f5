//! LlamaStackDistribution between its versions: a table for each field, what happens to what the other version cannot say,
//! and the laws that hold for every object.

mod fields;
mod kept;
mod laws;
mod made;
mod manifests;

use serde_json::{Value, json};
use steersman_api::convert::{Converted, convert};

pub const OLD: &str = "llamastack.io/v1alpha1";
pub const NEW: &str = "llamastack.io/v1alpha2";

/// On v1alpha2 objects, what only v1alpha1 can say; and the other way round.
pub const OLD_FIELDS: &str = "llamastack.io/v1alpha1-fields";
pub const NEW_FIELDS: &str = "llamastack.io/v1alpha2-fields";

pub fn other(version: &str) -> &'static str {
    if version == OLD { NEW } else { OLD }
}

pub fn object(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": version, "kind": "LlamaStackDistribution", "metadata": { "name": "stack" }, "spec": spec })
}

/// As a part of an object comes that a client of server-side apply owns.
pub fn bare(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": version, "kind": "LlamaStackDistribution", "spec": spec })
}

/// `object` in the version that it is not in.
pub fn turned(object: &Value) -> Converted {
    let to = other(object["apiVersion"].as_str().unwrap());
    convert(object.clone(), to).unwrap_or_else(|error| panic!("{object}: {error}"))
}

/// The same where nothing may be lost.
pub fn whole(object: &Value) -> Value {
    let Converted { object: out, lost } = turned(object);
    assert_eq!(lost, [] as [&str; 0], "{object}");
    out
}

/// What the annotations of the conversion with this name, or with a field's path after it, hold together.
pub fn held(object: &Value, annotation: &str) -> Value {
    fn join(whole: &mut Value, piece: Value) {
        match (whole, piece) {
            (Value::Object(whole), Value::Object(piece)) => {
                piece.into_iter().for_each(|(name, value)| join(whole.entry(name).or_insert(json!({})), value));
            }
            (whole, piece) => *whole = piece,
        }
    }
    let mut whole = json!({});
    for (name, text) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        if is_ours(name, annotation) {
            join(&mut whole, serde_json::from_str(text.as_str().unwrap()).unwrap());
        }
    }
    whole
}

pub fn is_ours(name: &str, annotation: &str) -> bool {
    name.strip_prefix(annotation).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
