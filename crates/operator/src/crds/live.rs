//! Reads versions, conversion and field managers of a CRD on the API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use serde_json::Value;
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

use crate::crds::MANAGER;

/// A CRD, held as JSON: a write must not lose fields that our types do not have.
#[derive(Clone, Debug)]
pub(super) struct LiveCrd {
    pub object: DynamicObject,
}

pub(super) fn api(server: &Server) -> Api<DynamicObject> {
    Api::all_with(server.client.clone(), &ApiResource::erase::<CustomResourceDefinition>(&()))
}

pub(super) async fn read(server: &Server, family: Family) -> Result<Option<LiveCrd>, CallError> {
    let found = server.call(api(server).get_opt(family.crd_name())).await?;
    Ok(found.map(|object| LiveCrd { object }))
}

/// Whether an apply of `manager` owns the field at `pointer` into the `fieldsV1` of its managedFields entry.
pub(crate) fn is_applied(object: &DynamicObject, manager: &str, pointer: &str) -> bool {
    object.managed_fields().iter().any(|entry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer(pointer).is_some())
    })
}

impl LiveCrd {
    fn at(&self, pointer: &str) -> Option<&Value> {
        self.object.data.pointer(pointer)
    }

    pub fn versions(&self) -> &[Value] {
        self.at("/spec/versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn versions_with(&self, flag: &str) -> impl Iterator<Item = &str> {
        let holds = move |version: &&Value| version.get(flag).and_then(Value::as_bool) == Some(true);
        self.versions().iter().filter(holds).filter_map(|version| version.get("name").and_then(Value::as_str))
    }

    pub fn served(&self) -> Vec<&str> {
        self.versions_with("served").collect()
    }

    pub fn storage(&self) -> &str {
        self.versions_with("storage").next().unwrap_or_default()
    }

    /// Versions in which objects may be stored.
    pub fn stored(&self) -> Vec<&str> {
        let listed = self.at("/status/storedVersions").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Versions in which objects may be stored, except the storage version.
    pub fn outdated(&self) -> Vec<&str> {
        self.stored().into_iter().filter(|version| *version != self.storage()).collect()
    }

    pub fn generation(&self) -> Option<i64> {
        self.object.metadata.generation
    }

    pub fn resource_version(&self) -> Option<&str> {
        self.object.metadata.resource_version.as_deref()
    }

    /// The conversion webhook. None: the API server only changes the apiVersion.
    pub fn converter(&self) -> Option<WebhookClientConfig> {
        let conversion = self.at("/spec/conversion")?;
        let client = conversion.pointer("/webhook/clientConfig").cloned().unwrap_or_default();
        let webhook = conversion.get("strategy").and_then(Value::as_str) == Some("Webhook");
        webhook.then(|| serde_json::from_value(client).unwrap_or_default())
    }

    /// Whether the last `--apply` set the converter, and no other manager changed it since.
    pub fn is_chosen(&self) -> bool {
        // Another manager that changes the name of the Service leaves path and port to us, so these do not count.
        self.applied("f:service/f:name") || self.applied("f:url")
    }

    /// Whether the last `--apply` set the bundle.
    pub fn is_bundle_applied(&self) -> bool {
        self.applied("f:caBundle")
    }

    fn applied(&self, part: &str) -> bool {
        is_applied(&self.object, MANAGER, &format!("/f:spec/f:conversion/f:webhook/f:clientConfig/{part}"))
    }

    /// Whether a condition is true, and its message.
    pub fn condition(&self, kind: &str) -> Option<(bool, &str)> {
        let conditions = self.at("/status/conditions").and_then(Value::as_array)?;
        let condition = conditions.iter().find(|condition| condition["type"] == kind)?;
        Some((condition["status"] == "True", condition["message"].as_str().unwrap_or_default()))
    }

    /// The tool that manages this CRD, for a message.
    pub fn managing_tool(&self) -> Option<String> {
        let (annotations, labels) = (self.object.annotations(), self.object.labels());
        if let Some(release) = annotations.get("meta.helm.sh/release-name") {
            let namespace = annotations.get("meta.helm.sh/release-namespace").map_or("?", String::as_str);
            return Some(format!("the Helm release {namespace}/{release}"));
        }
        if annotations.contains_key("argocd.argoproj.io/tracking-id") {
            return Some("an Argo CD application".to_owned());
        }
        if let Some(name) = labels.get("kustomize.toolkit.fluxcd.io/name") {
            return Some(format!("the Flux Kustomization {name}"));
        }
        if labels.contains_key("olm.managed") {
            return Some("the Operator Lifecycle Manager".to_owned());
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(metadata: Value) -> LiveCrd {
        let mut object = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "x" },
            "spec": {
                "versions": [
                    { "name": "v1alpha1", "served": true, "storage": false },
                    { "name": "v1beta1", "served": true, "storage": true },
                    { "name": "v0", "served": false, "storage": false },
                ],
                "conversion": { "strategy": "Webhook", "webhook": { "clientConfig": { "url": "https://a/b" } } },
            },
            "status": { "storedVersions": ["v1alpha1", "v1beta1"],
                "conditions": [{ "type": "Established", "status": "False", "message": "not yet" }] } });
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        LiveCrd { object: serde_json::from_value(object).unwrap() }
    }

    #[test]
    fn versions_conversion_and_conditions_are_read() {
        let crd = live(json!({}));
        assert_eq!(crd.served(), ["v1alpha1", "v1beta1"]);
        assert_eq!((crd.storage(), crd.outdated()), ("v1beta1", vec!["v1alpha1"]));
        assert_eq!(crd.converter().unwrap().url.as_deref(), Some("https://a/b"));
        assert_eq!(crd.condition("Established"), Some((false, "not yet")));
        assert_eq!(crd.condition("NamesAccepted"), None);
        let mut none = crd;
        none.object.data["spec"]["conversion"]["strategy"] = json!("None");
        assert_eq!(none.converter(), None);
    }

    #[test]
    fn field_is_ours_only_by_our_apply() {
        let fields = json!({ "f:spec": { "f:conversion": { "f:webhook": { "f:clientConfig": { "f:url": {} } } } } });
        let entry = |manager: &str, operation: &str| {
            let entry = json!({ "manager": manager, "operation": operation, "fieldsType": "FieldsV1",
                "apiVersion": "apiextensions.k8s.io/v1", "fieldsV1": fields });
            live(json!({ "managedFields": [entry] }))
        };
        assert!(entry(MANAGER, "Apply").is_chosen());
        assert!(!entry(MANAGER, "Apply").is_bundle_applied());
        assert!(!entry(MANAGER, "Update").is_chosen());
        assert!(!entry("kubectl", "Apply").is_chosen());
    }

    #[test]
    fn managing_tool_of_crd_is_named() {
        let helm =
            json!({ "annotations": { "meta.helm.sh/release-name": "dynamo", "meta.helm.sh/release-namespace": "d" } });
        let cases = [
            (json!({}), None),
            (helm, Some("the Helm release d/dynamo")),
            (json!({ "annotations": { "argocd.argoproj.io/tracking-id": "x" } }), Some("an Argo CD application")),
            (json!({ "labels": { "kustomize.toolkit.fluxcd.io/name": "apps" } }), Some("the Flux Kustomization apps")),
            (json!({ "labels": { "olm.managed": "true" } }), Some("the Operator Lifecycle Manager")),
        ];
        for (metadata, tool) in cases {
            assert_eq!(live(metadata).managing_tool().as_deref(), tool);
        }
    }
}
