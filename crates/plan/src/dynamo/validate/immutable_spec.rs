//! Decides on changes of a request whose profiling has begun.

use serde_json::{Map, Value, json};
use steersman_api::dynamo::v1beta1::Phase;
use steersman_reconcile::{FieldError, FieldPath, Message, message, path};

use super::operator_values::{self, OperatorValues};
use super::problem::forbidden;
use crate::dynamo::names::ACCEPTED_SPEC;
use crate::dynamo::phase;
use crate::dynamo::request::{self, Acceptance};
use crate::dynamo::snapshot::ObservedObject;

/// Number of changed paths in the message.
const MAX_LISTED_FIELDS: usize = 5;

pub fn refusal(old: &ObservedObject, new: &ObservedObject, operator_values: &OperatorValues) -> Option<FieldError> {
    let phase = request::phase(old).filter(|phase| phase::is_fixed(*phase))?;
    let mut changed = Vec::new();
    compare(&json!(old.spec), &json!(new.spec), &path!(spec), operator_values, &mut changed);
    let permitted = changed.is_empty() || is_deferred(old, phase, &changed) || is_reverted(old, new, phase, &changed);
    (!permitted).then(|| {
        forbidden(
            path!(spec),
            format!(
                "updates are forbidden while the resource is in phase \"{phase:?}\"; delete and recreate the resource to \
                 change its spec"
            ),
            remedy(old, phase, &changed),
        )
    })
}

/// Whether the change is one that stays open until the graph is created: the version, and in Ready the deployment
/// itself.
fn is_deferred(old: &ObservedObject, phase: Phase, changed: &[FieldPath]) -> bool {
    let open = match phase {
        Phase::Profiling => vec![path!(spec.runtimeVersionOverride)],
        Phase::Ready => vec![path!(spec.runtimeVersionOverride), path!(spec.autoApply)],
        _ => Vec::new(),
    };
    !request::auto_apply(old) && changed.iter().all(|path| open.contains(path))
}

/// Whether the change returns to the spec that profiling began with, after a change without admission. A deployed graph
/// was meant to be deployed, so `autoApply` may always be set again.
fn is_reverted(old: &ObservedObject, new: &ObservedObject, phase: Phase, changed: &[FieldPath]) -> bool {
    // A request in Deploying without `autoApply` goes back to Ready.
    let switched = match phase {
        Phase::Deploying => true,
        Phase::Deployed => request::auto_apply(new),
        _ => false,
    };
    if switched && matches!(changed, [only] if *only == path!(spec.autoApply)) {
        return true;
    }
    // The old object has the annotation with the hash of the accepted spec; the new spec must match this hash. The
    // annotation in the new object is not trusted.
    let then = ObservedObject { spec: new.spec.clone(), ..old.clone() };
    has_rejected_change(old) && request::acceptance(&then) != Acceptance::Changed
}

/// Whether the stored spec is not the one that profiling began with.
fn has_rejected_change(old: &ObservedObject) -> bool {
    old.annotations.contains_key(ACCEPTED_SPEC) && request::acceptance(old) == Acceptance::Changed
}

fn remedy(old: &ObservedObject, phase: Phase, changed: &[FieldPath]) -> Message {
    let mut named = Message::list(changed.iter().take(MAX_LISTED_FIELDS).cloned());
    if changed.len() > MAX_LISTED_FIELDS {
        named = named.with(format!(" and {} more", changed.len() - MAX_LISTED_FIELDS));
    }
    let rest: Message = match phase {
        _ if has_rejected_change(old) => {
            " The stored spec differs from the one that profiling started with. Only a change back to that spec is \
             accepted."
                .into()
        }
        Phase::Profiling if !request::auto_apply(old) => {
            message![" In this phase only ", path!(spec.runtimeVersionOverride), " can be changed."]
        }
        Phase::Ready if !request::auto_apply(old) => {
            message![
                " In this phase only ",
                path!(spec.runtimeVersionOverride),
                " and ",
                path!(spec.autoApply),
                " can be changed."
            ]
        }
        Phase::Deploying => message![" In this phase only ", path!(spec.autoApply), " can be changed."],
        _ => Message::default(),
    };
    message!["Changed fields: ", named, ".", rest]
}

/// Collects the changed paths. An absent section equals one without fields, and an absent field means its default, or
/// the value that the operator has set.
fn compare(old: &Value, new: &Value, path: &FieldPath, operator_values: &OperatorValues, found: &mut Vec<FieldPath>) {
    let empty = Map::new();
    // Overrides are parts of other objects, in which an empty object can have a meaning (`emptyDir: {}`).
    let exact = path.below(&path!(spec.overrides)).is_some_and(|inside| !inside.is_empty());
    let fields = |value: &Value| value.is_object() || (value.is_null() && !exact);
    if old != new && fields(old) && fields(new) {
        let (before, after) = (old.as_object().unwrap_or(&empty), new.as_object().unwrap_or(&empty));
        let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
        names.sort();
        names.dedup();
        let mut inner = Vec::new();
        for name in names {
            let value = |of: &Map<String, Value>| of.get(name).cloned().unwrap_or_default();
            compare(&value(before), &value(after), &path.field(name.clone()), operator_values, &mut inner);
        }
        // A section that was added or removed is reported by its own path.
        let whole = old.is_null() || new.is_null();
        inner.truncate(if whole { 1 } else { usize::MAX });
        found.extend(inner.into_iter().map(|place| if whole { path.clone() } else { place }));
        return;
    }
    let effective = |value: &Value| match value {
        Value::Null => operator_values::default(path).unwrap_or_default(),
        Value::String(text) if text.is_empty() && !exact => Value::Null,
        other => other.clone(),
    };
    let left_out = effective(new).is_null() && operator_values.has(path, old);
    if effective(old) != effective(new) && !left_out {
        found.push(path.clone());
    }
}
