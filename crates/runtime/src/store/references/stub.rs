//! The watched part of a Secret or ConfigMap: name and version. Everything else is dropped while parsing, above all the
//! annotations, in which kubectl stores the applied manifest with its values.

use std::borrow::Cow;

use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Deserializer};
use steersman_reconcile::NamespacedName;

#[derive(Clone, Debug, Deserialize)]
pub struct Stub {
    #[serde(deserialize_with = "trimmed")]
    metadata: ObjectMeta,
}

impl Stub {
    /// The name and the version.
    pub fn parts(&self) -> (NamespacedName, String) {
        let name = NamespacedName::new(self.namespace().unwrap_or_default(), self.name_any());
        (name, self.resource_version().unwrap_or_default())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trimmed {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
}

fn trimmed<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let Trimmed { namespace, name, resource_version } = Trimmed::deserialize(from)?;
    Ok(ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() })
}

impl Resource for Stub {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn api_version(of: &ApiResource) -> Cow<'_, str> {
        of.api_version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }

    /// The API server is asked for metadata alone.
    fn metadata_api() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stub_holds_only_name_and_version() {
        let sent = r#"{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"namespace": "team-a",
            "name": "key", "resourceVersion": "7", "uid": "u", "labels": {"a": "b"}, "annotations":
            {"kubectl.kubernetes.io/last-applied-configuration": "hush"}, "managedFields": []}}"#;
        let stub: Stub = serde_json::from_str(sent).unwrap();
        assert!(!format!("{stub:?}").contains("hush"));
        assert_eq!(stub.parts(), (NamespacedName::new("team-a", "key"), "7".to_owned()));
    }
}
