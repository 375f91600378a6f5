//! Reports environment variables that the server does not start without and that nothing sets.

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_reconcile::{message, path};

use super::draft::{Draft, id_of};
use super::problem::reason;
use super::storage::{self, Prepare};
use super::{FieldError, ids};

pub(super) fn tell(draft: &mut Draft<'_>, prepare: Prepare) {
    let mut needed = BTreeSet::new();
    draft.config.values().for_each(|value| collect(value, &mut needed));
    let overrides = draft.spec.workload.as_ref().and_then(|workload| workload.overrides.as_ref());
    let set: Vec<&str> =
        overrides.iter().flat_map(|given| given.env.iter().flatten()).map(|env| env.name.as_str()).collect();
    let from_secrets: Vec<&str> = draft.secrets.uses.iter().map(|used| used.variable.as_str()).collect();
    let prepared: Vec<&str> = storage::prepared(prepare).collect();
    let missing = needed.into_iter().filter(|name| {
        let name = name.as_str();
        !set.contains(&name) && !from_secrets.contains(&name) && !prepared.contains(&name)
    });
    let remarks: Vec<FieldError> = missing
        .map(|name| {
            FieldError::new(
                path!(spec.workload.overrides.env),
                reason::NEEDED,
                format!("the server does not start without the variable {name}, which nothing here sets"),
                message![format!("Add {name} to "), path!(spec.workload.overrides.env), ", unless the image sets it."],
            )
        })
        .collect();
    draft.remarks.extend(remarks);
}

/// The server skips an entry whose provider depends on a variable, with all that is in it.
fn collect(value: &Value, needed: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => needed.extend(ids::needed(text).map(ToOwned::to_owned)),
        Value::Array(items) => {
            let sure = |item: &&Value| id_of(item).is_none_or(|known| known.only_with.is_none());
            items.iter().filter(sure).for_each(|item| collect(item, needed));
        }
        Value::Object(map) => map.values().for_each(|value| collect(value, needed)),
        _ => {}
    }
}
