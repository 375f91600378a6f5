//! Decodes VariantAutoscalings. An object that cannot be decoded does not affect others.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use steersman_api::variant::v1alpha1::VariantAutoscalingStatus;
use steersman_plan::variant::{ObservedVariant, names};
use steersman_reconcile::{DecodeError, Lookup, NamespacedName, decode};

use steersman_runtime::store::Record;

/// The record of an object, without scale target and settings.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantRecord {
    pub uid: String,
    pub version: String,
    /// The error says why the spec cannot be decoded.
    pub variant: Result<ObservedVariant, DecodeError>,
    /// The stored status as it is, if it has fields that our types do not have. It is then rewritten without them.
    pub unknown_status: Option<Value>,
    /// Whether the object requests an owner reference to its scale target.
    pub wants_owner: bool,
    pub owners: Vec<OwnerReference>,
    /// Value of the instance label. It is known even if the spec cannot be decoded.
    pub instance: Option<String>,
}

impl Record for VariantRecord {}

pub fn variant(object: &DynamicObject) -> VariantRecord {
    let stored = object.data.get("status").filter(|status| !status.is_null());
    let status = stored.and_then(|stored| decode::<VariantAutoscalingStatus>(stored, "status").ok());
    let same = |status: &VariantAutoscalingStatus| serde_json::to_value(status).ok().as_ref() == stored;
    let unknown_status = stored.filter(|_| !status.as_ref().is_some_and(same)).cloned();
    let decoded = decode(&object.data["spec"], "spec").map(|spec| ObservedVariant {
        key: NamespacedName::new(object.namespace().unwrap_or_default(), object.name_any()),
        generation: object.metadata.generation,
        created: object.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        deleting: object.metadata.deletion_timestamp.is_some(),
        labels: object.labels().clone(),
        spec: Arc::new(spec),
        status: status.map(Arc::new),
        target: Lookup::Unknown("not read yet".to_owned()),
        config: Arc::default(),
    });
    VariantRecord {
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().unwrap_or_default(),
        variant: decoded,
        unknown_status,
        wants_owner: object.annotations().get(names::OWNER_ANNOTATION).is_some_and(|given| given == "true"),
        instance: object.labels().get(names::INSTANCE_LABEL).cloned(),
        owners: object.metadata.owner_references.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(status: Value) -> VariantRecord {
        variant(
            &serde_json::from_value(json!({
                "metadata": { "name": "v", "namespace": "a", "uid": "u", "resourceVersion": "7" },
                "spec": { "modelID": "m", "scaleTargetRef": { "kind": "Deployment", "name": "d" } },
                "status": status,
            }))
            .unwrap(),
        )
    }

    #[test]
    fn status_of_earlier_operator_is_decoded() {
        let own = decode(json!({ "desiredOptimizedAlloc": { "numReplicas": 3 } }));
        assert_eq!(own.unknown_status, None);
        let number = |read: VariantRecord| read.variant.unwrap().status?.desired_optimized_alloc.as_ref()?.num_replicas;
        assert_eq!(number(own), Some(3));
        let go_status = json!({ "desiredOptimizedAlloc": { "lastRunTime": null, "numReplicas": 3 }, "old": 1 });
        let go = decode(go_status);
        assert!(go.unknown_status.is_some());
        assert_eq!(number(go), Some(3));
        let bad = decode(json!({ "conditions": "none" }));
        assert!(bad.unknown_status.is_some());
        assert_eq!(bad.variant.unwrap().status, None);
        assert_eq!(decode(Value::Null).unknown_status, None);
    }

    #[test]
    fn instance_is_known_for_undecodable_object() {
        let labels = json!({ names::INSTANCE_LABEL: "blue" });
        let object = json!({ "metadata": { "name": "v", "labels": labels }, "spec": { "modelID": 7 } });
        let read = variant(&serde_json::from_value(object).unwrap());
        assert!(read.variant.is_err());
        assert_eq!(read.instance.as_deref(), Some("blue"));
    }

    #[test]
    fn decode_error_has_path_without_value() {
        let cause = |spec: Value| {
            let object = json!({ "metadata": { "name": "v" }, "spec": spec });
            variant(&serde_json::from_value(object).unwrap()).variant.unwrap_err().to_string()
        };
        let error = cause(json!({ "accelerator": "A100", "modelID": { "password": "x" }, "minReplicas": "two" }));
        assert!(error.starts_with("spec.minReplicas: invalid type: string (a value)"), "the first of both: {error}");
        let error = cause(json!({ "accelerator": "A100", "modelID": { "password": "x" } }));
        assert!(error.starts_with("spec.modelID: invalid type: map") && !error.contains("password"), "{error}");
        let error = cause(json!({ "scaleTargetRef": { "kind": "Deployment" }, "modelID": "m" }));
        assert!(error.starts_with("spec.scaleTargetRef: missing field"), "{error}");
        assert!(cause(json!({ "minReplicas": 1 })).starts_with("spec: missing field"), "{error}");
        assert!(cause(Value::Null).starts_with("spec: "));
    }
}
