//! Watched objects of which only a part is parsed: a tree of JSON values costs most of the time and memory of an event.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use kube::{Resource, ResourceExt};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use steersman_reconcile::NamespacedName;

/// The name and version of an object. Everything else is dropped while parsing, above all the annotations, in which kubectl
/// stores the applied manifest with its values.
#[derive(Clone, Debug, Deserialize)]
pub struct Stub {
    #[serde(deserialize_with = "name_and_version")]
    metadata: ObjectMeta,
}

impl Stub {
    /// The name and the version.
    pub fn parts(&self) -> (NamespacedName, String) {
        let name = NamespacedName::new(self.namespace().unwrap_or_default(), self.name_any());
        (name, self.resource_version().unwrap_or_default())
    }
}

fn name_and_version<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Trimmed {
        namespace: Option<String>,
        name: Option<String>,
        resource_version: Option<String>,
    }
    let Trimmed { namespace, name, resource_version } = Trimmed::deserialize(from)?;
    Ok(ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() })
}

/// An object as JSON text, with the metadata by which it is found.
#[derive(Clone, Debug)]
pub struct RawObject {
    /// Identity, labels and owner references.
    metadata: ObjectMeta,
    pub text: Arc<[u8]>,
}

impl RawObject {
    /// Parses the text. A page of large objects as text is a small part of its size as trees, so that they are parsed one by one.
    /// An object that is not of this type is logged and left out.
    pub fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        let parsed = serde_json::from_slice(&self.text);
        if let Err(cause) = &parsed {
            let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
            // The category alone: the text may quote the object.
            tracing::warn!(namespace, name, cause = ?cause.classify(), "cannot decode an object; it is left out");
        }
        parsed.ok()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct ObjectHead {
            metadata: Trimmed,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Trimmed {
            namespace: Option<String>,
            name: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
            labels: Option<BTreeMap<String, String>>,
            owner_references: Option<Vec<OwnerReference>>,
        }
        let raw = Box::<RawValue>::deserialize(from)?;
        let ObjectHead { metadata } = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        let Trimmed { namespace, name, uid, resource_version, labels, owner_references } = metadata;
        let metadata =
            ObjectMeta { namespace, name, uid, resource_version, labels, owner_references, ..ObjectMeta::default() };
        Ok(Self { metadata, text: raw.get().as_bytes().into() })
    }
}

/// Implements `Resource` for a kind that is known at run time.
macro_rules! dynamic_resource {
    ($object:ty, metadata_api: $metadata_api:literal) => {
        impl Resource for $object {
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

            fn metadata_api() -> bool {
                $metadata_api
            }
        }
    };
}

// The API server is asked for metadata alone.
dynamic_resource!(Stub, metadata_api: true);
dynamic_resource!(RawObject, metadata_api: false);

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use kube::core::WatchEvent;

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

    #[test]
    fn raw_object_keeps_text_of_event() {
        let object = r#"{"metadata":{"namespace":"team-a","name":"web","uid":"u","resourceVersion":"7","labels":{"a":"b"},
            "managedFields":[{"manager":"m"}]},"spec":{"replicas":1.50}}"#;
        let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let WatchEvent::Added(raw) = serde_json::from_str::<WatchEvent<RawObject>>(&event).unwrap() else { panic!() };
        assert_eq!(std::str::from_utf8(&raw.text).unwrap(), object);
        assert_eq!((raw.name_any().as_str(), raw.labels()["a"].as_str()), ("web", "b"));
        assert!(raw.metadata.managed_fields.is_none());
        let parsed: DynamicObject = raw.parse().unwrap();
        assert_eq!(parsed.data["spec"]["replicas"], 1.5);
        #[derive(Deserialize)]
        struct Other {
            #[expect(dead_code, reason = "only parsed")]
            spec: String,
        }
        assert!(raw.parse::<Other>().is_none());
    }
}
