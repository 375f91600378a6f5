//! Changes of a request whose profiling has begun.
//! Comes in: the request as it is stored and as it would be; goes out: why the change is refused, if it is.

use serde_json::{Map, Value, json};
use steersman_api::dynamo::v1beta1::Phase;

use super::problem::{Cause, Problem};
use super::rules::VERSION;
use crate::dynamo::asked::{self, Acceptance};
use crate::dynamo::names::ACCEPTED_SPEC;
use crate::dynamo::phase;
use crate::dynamo::seen::ObjectSeen;

const AUTO_APPLY: &str = "spec.autoApply";

/// How many places of a change are named.
const NAMED: usize = 5;

pub fn refusal(old: &ObjectSeen, new: &ObjectSeen) -> Option<Problem> {
    let phase = asked::phase(old).filter(|phase| phase::is_fixed(*phase))?;
    let changed = changes(old, new);
    let permitted = changed.is_empty() || deferred(old, phase, &changed) || taken_back(old, new, phase, &changed);
    (!permitted).then(|| {
        Problem::new(
            "spec",
            Cause::Forbidden,
            format!(
                "updates are forbidden while the resource is in phase \"{phase:?}\"; delete and recreate the resource to \
                 change its spec"
            ),
            remedy(old, phase, &changed),
        )
    })
}

/// What its author can still decide while the graph is not made: the version, and at last that it shall be made.
fn deferred(old: &ObjectSeen, phase: Phase, changed: &[String]) -> bool {
    let open: &[&str] = match phase {
        Phase::Profiling => &[VERSION],
        Phase::Ready => &[VERSION, AUTO_APPLY],
        _ => &[],
    };
    !asked::auto_apply(old) && changed.iter().all(|path| open.contains(&path.as_str()))
}

/// Back to what profiling began with, after a change that slipped in while nobody was asked. A graph that is deployed was
/// to be deployed, so that this can always be said again.
fn taken_back(old: &ObjectSeen, new: &ObjectSeen, phase: Phase, changed: &[String]) -> bool {
    let switched = matches!(phase, Phase::Deploying | Phase::Deployed) && asked::auto_apply(new);
    if switched && matches!(changed, [only] if only == AUTO_APPLY) {
        return true;
    }
    // As the plan will see it: with the mark of the stored one.
    let then = ObjectSeen { spec: new.spec.clone(), ..old.clone() };
    strays(old) && asked::acceptance(&then) != Acceptance::Changed
}

/// It is not what profiling began with already.
fn strays(old: &ObjectSeen) -> bool {
    old.annotations.contains_key(ACCEPTED_SPEC) && asked::acceptance(old) == Acceptance::Changed
}

fn remedy(old: &ObjectSeen, phase: Phase, changed: &[String]) -> String {
    let mut named = changed.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if changed.len() > NAMED {
        named.push_str(&format!(" and {} more", changed.len() - NAMED));
    }
    let rest = match phase {
        _ if strays(old) => {
            " The stored spec is not the one that profiling began with: only a change back to all of that one is accepted."
        }
        Phase::Profiling if !asked::auto_apply(old) => " Only spec.runtimeVersionOverride can be changed meanwhile.",
        Phase::Ready if !asked::auto_apply(old) => {
            " Only spec.runtimeVersionOverride and spec.autoApply can be changed now."
        }
        _ => "",
    };
    format!("Changed is {named}.{rest}")
}

/// The places that differ in meaning.
fn changes(old: &ObjectSeen, new: &ObjectSeen) -> Vec<String> {
    let mut found = Vec::new();
    compare(&plain(old), &plain(new), "spec", &mut found);
    found
}

/// With what an absent field means, and without parts that say nothing.
fn plain(object: &ObjectSeen) -> Value {
    let Value::Object(mut fields) = json!(object.spec) else { return Value::Null };
    fields.insert("autoApply".to_owned(), asked::auto_apply(object).into());
    fields.retain(|_, value| !(value.as_object().is_some_and(Map::is_empty) || value == ""));
    Value::Object(fields)
}

fn compare(old: &Value, new: &Value, path: &str, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (before, after) = (before.get(name), after.get(name));
                compare(
                    before.unwrap_or(&Value::Null),
                    after.unwrap_or(&Value::Null),
                    &format!("{path}.{name}"),
                    found,
                );
            }
        }
        _ if old == new => {}
        _ => found.push(path.to_owned()),
    }
}
