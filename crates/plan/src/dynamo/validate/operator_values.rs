//! Recognizes values in a stored request that its author did not write, so that a manifest without them means the same.

use serde_json::{Value, json};
use steersman_reconcile::{FieldPath, Segment, path};

use super::Facts;
use crate::dynamo::names::{ACCEPTED_SPEC, MANAGER};

/// Defaults of the schema. The API server sets them in the stored object, but not yet in the object of another version
/// that admission sees.
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

/// Values that the operator has set.
#[derive(Default)]
pub struct OperatorValues {
    image: Option<String>,
    /// Fields that the operator manages, in the form of managedFields.
    managed: Vec<Value>,
}

impl OperatorValues {
    /// The values that `new` may omit. An author's own manifest, sent with `kubectl replace`, has neither these values nor
    /// the annotation with the hash of the accepted spec. If `new` has that annotation, its author read the stored request
    /// and saw the values, so none may be omitted.
    pub fn of(old: &Value, new: &Value, facts: &Facts<'_>) -> Self {
        if !new["metadata"]["annotations"][ACCEPTED_SPEC].is_null() {
            return Self::default();
        }
        let entries = old["metadata"]["managedFields"].as_array().into_iter().flatten();
        let others = |entry: &&Value| entry["manager"] != MANAGER;
        // An earlier operator's entry that still owns the field cannot be distinguished from an author's.
        let (theirs, ours): (Vec<_>, Vec<_>) = entries.partition(others);
        let spec = |entry: &&Value| entry["fieldsV1"]["f:spec"].clone();
        let theirs: Vec<Value> = theirs.iter().map(spec).collect();
        let managed = ours.iter().map(spec).map(|ours| without(&ours, &theirs)).collect();
        Self { image: facts.default_image.map(str::to_owned), managed }
    }

    pub fn has(&self, path: &FieldPath, value: &Value) -> bool {
        if *path == path!(spec.image) {
            return self.image.as_ref().is_some_and(|image| value == image);
        }
        // Lists are compared as a whole, so that the path of a change has fields only.
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

/// The fields that none of `others` has. All are in the form of managedFields.
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
