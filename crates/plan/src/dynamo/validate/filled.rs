//! What stands in a stored request though its author never wrote it.
//! Comes in: the request as it is stored, and what the operator was told; goes out: whether one that leaves a field out
//! means the same.

use serde_json::{Value, json};
use steersman_reconcile::{FieldPath, Segment, path};

use super::Facts;
use crate::dynamo::names::{ACCEPTED_SPEC, MANAGER};

/// Defaults of the schema. The API server sets them in an object that it has stored, and not yet in one of another version
/// that admission is asked about.
pub fn default(path: &FieldPath) -> Option<Value> {
    let defaults = [
        (path!(spec.autoApply), json!(true)),
        (path!(spec.backend), json!("auto")),
        (path!(spec.searchStrategy), json!("rapid")),
        (path!(spec.modelCache.pvcMountPath), json!("/opt/model-cache")),
        (path!(spec.workload.isl), json!(4000)),
        (path!(spec.workload.osl), json!(1000)),
    ];
    defaults.into_iter().find(|(known, _)| known == path).map(|(_, value)| value)
}

/// What the operator has filled in.
#[derive(Default)]
pub struct Filled {
    image: Option<String>,
    /// The fields that it manages, in the form of managedFields.
    managed: Vec<Value>,
}

impl Filled {
    /// Whoever sends the whole file again, as `kubectl replace` does, leaves that out, and with it the mark of the spec that
    /// profiling began with. One that carries the mark was read before, and its author has seen what was filled in.
    pub fn of(old: &Value, new: &Value, facts: &Facts<'_>) -> Self {
        if !new["metadata"]["annotations"][ACCEPTED_SPEC].is_null() {
            return Self::default();
        }
        let entries = old["metadata"]["managedFields"].as_array().into_iter().flatten();
        let others = |entry: &&Value| entry["manager"] != MANAGER;
        // One of an earlier operator that has not let go of the field yet is no author either, but nobody can tell.
        let (theirs, ours): (Vec<_>, Vec<_>) = entries.partition(others);
        let spec = |entry: &&Value| entry["fieldsV1"]["f:spec"].clone();
        let theirs: Vec<Value> = theirs.iter().map(spec).collect();
        let managed = ours.iter().map(spec).map(|ours| without(&ours, &theirs)).collect();
        Self { image: facts.default_image.map(str::to_owned), managed }
    }

    /// Whether the operator put this value there.
    pub fn has(&self, path: &FieldPath, value: &Value) -> bool {
        if *path == path!(spec.image) {
            return self.image.as_ref().is_some_and(|image| value == image);
        }
        // Lists are compared as a whole, so a path of a change has fields alone.
        let way = path.segments().iter().skip(1).map(|segment| match segment {
            Segment::Field(name) => Some(format!("f:{name}")),
            Segment::Index(_) | Segment::Key(_) => None,
        });
        let Some(way) = way.collect::<Option<Vec<String>>>() else { return false };
        self.managed.iter().any(|fields| {
            let found = way.iter().try_fold(fields, |fields, name| fields.get(name));
            found.is_some_and(|leaf| leaf.as_object().is_some_and(serde_json::Map::is_empty))
        })
    }
}

/// The fields that nobody else manages as well.
fn without(fields: &Value, others: &[Value]) -> Value {
    let Some(fields) = fields.as_object() else { return Value::Null };
    let left = fields.iter().filter_map(|(name, inner)| {
        let same: Vec<Value> = others.iter().filter_map(|other| other.get(name)).cloned().collect();
        let leaf = inner.as_object().is_none_or(serde_json::Map::is_empty);
        if leaf {
            same.is_empty().then(|| (name.clone(), inner.clone()))
        } else {
            Some((name.clone(), without(inner, &same)))
        }
    });
    Value::Object(left.collect())
}
