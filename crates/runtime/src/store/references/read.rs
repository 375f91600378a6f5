//! Reads one Secret or ConfigMap by its name. Values of Secrets are skipped while they are parsed.

use std::collections::BTreeMap;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use steersman_reconcile::NamespacedName;

use super::ReferenceKind;
use crate::client::{CallError, Server};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// `resourceVersion`.
    pub version: String,
    /// Time of the last change of the data.
    pub changed: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    /// For a Secret, each key has an empty value.
    pub data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Raw<V> {
    metadata: Metadata,
    data: Option<BTreeMap<String, V>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    managed_fields: Vec<DataWrite>,
}

/// A write, as far as it is about data.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DataWrite {
    time: Option<Timestamp>,
    #[serde(default)]
    fields_v1: WrittenParts,
}

#[derive(Default, Deserialize)]
struct WrittenParts {
    #[serde(rename = "f:data")]
    data: Option<IgnoredAny>,
    /// The form in which an apply writes a Secret. The API server moves the values to `data`, but not the owner.
    #[serde(rename = "f:stringData")]
    string_data: Option<IgnoredAny>,
}

impl DataWrite {
    fn is_of_data(&self) -> bool {
        self.fields_v1.data.is_some() || self.fields_v1.string_data.is_some()
    }
}

/// Reads the object. `None` if it does not exist.
pub async fn read(server: &Server, kind: ReferenceKind, object: &NamespacedName) -> Result<Option<Content>, CallError> {
    // An invalid name cannot exist, and in a URL it might be the path of another resource.
    if !(is_name(&object.namespace) && is_name(&object.name)) {
        return Ok(None);
    }
    match kind {
        ReferenceKind::Secret => get::<Secret, IgnoredAny>(server, object, |_| String::new()).await,
        ReferenceKind::ConfigMap => get::<ConfigMap, String>(server, object, |value| value).await,
    }
}

async fn get<K: Resource<DynamicType = ()>, V: DeserializeOwned>(
    server: &Server,
    NamespacedName { namespace, name }: &NamespacedName,
    keep: fn(V) -> String,
) -> Result<Option<Content>, CallError> {
    let request = Request::get(format!("{}/{name}", K::url_path(&(), Some(namespace)))).body(Vec::new());
    let request = request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)));
    match server.call(async { server.client.request::<Raw<V>>(request?).await }).await {
        Ok(raw) => Ok(Some(content(raw, keep))),
        Err(CallError::Answered { code: 404, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn content<V>(raw: Raw<V>, keep: fn(V) -> String) -> Content {
    let of_data = raw.metadata.managed_fields.iter().filter(|write| write.is_of_data());
    Content {
        changed: of_data.filter_map(|write| write.time).max(),
        version: raw.metadata.resource_version.unwrap_or_default(),
        labels: raw.metadata.labels.unwrap_or_default(),
        data: raw.data.into_iter().flatten().map(|(key, value)| (key, keep(value))).collect(),
    }
}

/// The letters of a DNS name, which is all that Kubernetes accepts here.
pub fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| letter(c) || c == '-' || c == '.';
    (1..=253).contains(&name.len()) && name.starts_with(letter) && name.ends_with(letter) && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_not_a_name() {
        for name in ["a", "a-b.c", "0"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(254);
        for name in ["", "..", "../secrets/x", "a/b", "a?b", "A", "a%2fb", "-a", "a.", "ä", long.as_str()] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn secret_values_are_dropped() {
        let text = r#"{"metadata": {"resourceVersion": "7", "labels": {"shared": "true"}},
            "data": {"a": "aHVzaA==", "b": ""}}"#;
        let secret = content(serde_json::from_str::<Raw<IgnoredAny>>(text).unwrap(), |_| String::new());
        assert_eq!((secret.version.as_str(), secret.labels["shared"].as_str()), ("7", "true"));
        assert_eq!(secret.data, [("a".into(), String::new()), ("b".into(), String::new())].into());
        let map = content(serde_json::from_str::<Raw<String>>(text).unwrap(), |value| value);
        assert_eq!(map.data["a"], "aHVzaA==");
        let empty = content(serde_json::from_str::<Raw<String>>(r#"{"metadata": {}}"#).unwrap(), |value| value);
        let nothing = Content { version: String::new(), changed: None, labels: BTreeMap::new(), data: BTreeMap::new() };
        assert_eq!(empty, nothing);
    }

    #[test]
    fn change_time_is_that_of_the_data() {
        let text = r#"{"metadata": {"managedFields": [
            {"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
            {"time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:data": {"f:b": {}}, "f:type": {}}}, {}]}}"#;
        let changed =
            |text: &str| content(serde_json::from_str::<Raw<IgnoredAny>>(text).unwrap(), |_| String::new()).changed;
        assert_eq!(changed(text), Some("2026-01-02T00:00:00Z".parse().unwrap()));
        let applied = text.replace("f:metadata", "f:stringData");
        assert_eq!(changed(&applied), Some("2026-01-03T00:00:00Z".parse().unwrap()));
    }
}
