//! Finds fields that the schema accepts and this version does not know: the CRD embeds newer Kubernetes types than this
//! version is built with.

use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{FieldPath, path};

use crate::llamastack::config::FieldError;
use crate::llamastack::config::problem::reason;

/// The paths that were lost between the written and the decoded spec.
pub fn unread(written: &Value, read: &LlamaStackDistributionSpec) -> Vec<FieldPath> {
    let mut lost = Vec::new();
    compare(written, &json!(read), &path!(spec), &mut lost);
    lost
}

/// The rest of the spec is acted on, so this is a remark.
pub fn unread_problem(path: FieldPath) -> FieldError {
    FieldError::new(
        path,
        reason::IGNORED,
        "this version of Steersman does not know the field and ignores it",
        "Remove it, or upgrade Steersman.",
    )
}

fn compare(written: &Value, read: &Value, path: &FieldPath, lost: &mut Vec<FieldPath>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (name, value) in written.iter().filter(|(_, value)| !value.is_null()) {
                let path = path.field(name.clone());
                match read.get(name) {
                    Some(read) => compare(value, read, &path, lost),
                    None => lost.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (place, (written, read)) in written.iter().zip(read).enumerate() {
                compare(written, read, &path.index(place), lost);
            }
        }
        _ => {}
    }
}
