//! Reports environment variables that the server does not start without and that nothing sets.

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_reconcile::{message, path};

use super::draft::{Draft, id_of};
use super::ids;
use super::problem::reason;
use super::storage::Prepare;
use crate::llamastack::fields;

pub(super) fn report(draft: &mut Draft<'_>, prepare: Prepare) {
    let mut needed = BTreeSet::new();
    draft.config.values().for_each(|value| collect(value, &mut needed));
    let in_spec = fields::env(draft.spec).iter().map(|env| &env.name);
    let set: BTreeSet<String> = in_spec.chain(draft.secrets.uses.iter().map(|used| &used.variable)).cloned().collect();
    for name in needed {
        if set.contains(&name) || prepare.variables().contains(&name.as_str()) {
            continue;
        }
        let env = path!(spec.workload.overrides.env);
        draft.remark(
            env.clone(),
            reason::NEEDED,
            format!("the server does not start without the environment variable {name}, which the spec does not set"),
            message![format!("Add {name} to "), env, ", unless the image sets it."],
        );
    }
}

/// The server skips an entry whose provider depends on a variable, with all that is in it.
fn collect(value: &Value, needed: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => needed.extend(ids::needed(text).map(ToOwned::to_owned)),
        Value::Array(items) => {
            let sure = |item: &&Value| id_of(item).is_none_or(|known| known.required_variable.is_none());
            items.iter().filter(sure).for_each(|item| collect(item, needed));
        }
        Value::Object(map) => map.values().for_each(|value| collect(value, needed)),
        _ => {}
    }
}
