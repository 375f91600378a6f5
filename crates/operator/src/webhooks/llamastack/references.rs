//! Looks up the Secrets and ConfigMaps that a request adds; keys are kept, values never.
//!
//! Lookups are bounded in number and in time: an object with 1,000 references is validated as quickly as one with two.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use steersman_api::convert::convert;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::validate::{
    Reference, ReferenceKind, ReferenceState, ReferencedObject, is_shared_with, references,
};
use steersman_reconcile::{Message, message};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::cpu_bound;
use steersman_runtime::store::references::is_name;
use tokio::time;

use super::Rule;
use crate::webhooks::case::AdmissionCase;

/// Most lookups for one request, more than a sensible object names.
const MAX_LOOKUPS: usize = 64;

/// Lookups in progress at a time.
const CONCURRENCY: usize = 8;

/// Longest time for all lookups together. The webhook gives up at 8 s.
const MAX_LOOKUP_TIME: Duration = Duration::from_secs(4);

/// Rules of the lookups. RBAC has no smaller right, neither for existence nor for keys.
pub fn rules() -> Vec<Rule> {
    let why =
        "report at admission that a Secret or ConfigMap of a LlamaStackDistribution is missing; values are not stored";
    vec![Rule::namespaced("", "secrets", &["get"], why), Rule::namespaced("", "configmaps", &["get"], why)]
}

#[derive(Debug, Default)]
pub struct LookupResults {
    pub found: BTreeMap<ReferencedObject, ReferenceState>,
    /// A warning for each reference that was not looked up, with the reason.
    pub unknown: Vec<Message>,
    /// Namespace of the ConfigMap of `overrideConfig`, if not the object's own. The storage version has no field for it.
    pub config_namespace: Option<String>,
}

/// Looks up the references that the request adds.
pub async fn look_up(server: &Server, case: &AdmissionCase) -> LookupResults {
    let (config_namespace, added) = cpu_bound::run(|| (config_namespace(&case.new), added(case)));
    let config_namespace = config_namespace.filter(|namespace| *namespace != case.namespace);
    let mut referenced: Vec<Reference> = Vec::new();
    for reference in added {
        let reference = reference.with_config_namespace(config_namespace.as_deref());
        if !referenced.iter().any(|known| known.named == reference.named) {
            referenced.push(reference);
        }
    }
    let beyond = referenced.split_off(referenced.len().min(MAX_LOOKUPS));
    let mut lookups = Vec::new();
    for reference in &referenced {
        let named = reference.named.clone();
        lookups.push(async move {
            let found = find(server, &named, &case.namespace).await;
            (named, found)
        });
    }
    let lookups = stream::iter(lookups).buffer_unordered(CONCURRENCY).take_until(time::sleep(MAX_LOOKUP_TIME));
    let answers: Vec<(ReferencedObject, Result<ReferenceState, CallError>)> = lookups.collect().await;

    let mut results = LookupResults { config_namespace, ..LookupResults::default() };
    let mut causes = BTreeMap::new();
    for (named, answer) in answers {
        match answer {
            Ok(found) => _ = results.found.insert(named, found),
            Err(error) => _ = causes.insert(named, error.to_string()),
        }
    }
    for reference in referenced.iter().filter(|reference| !results.found.contains_key(&reference.named)) {
        let late = || format!("no answer within {} s", MAX_LOOKUP_TIME.as_secs());
        let cause = causes.remove(&reference.named).unwrap_or_else(late);
        results.unknown.push(unknown(reference, &cause));
    }
    let too_many = format!("more than {MAX_LOOKUPS} objects are referenced");
    results.unknown.extend(beyond.iter().map(|reference| unknown(reference, &too_many)));
    results
}

fn unknown(reference: &Reference, cause: &str) -> Message {
    let ReferencedObject { kind, name, .. } = &reference.named;
    message![&reference.path, format!(": cannot check whether {kind:?} {name:?} exists: {cause}")]
}

/// The references of the new object that the old one does not have. A spec that cannot be decoded has none; validation
/// reports why.
fn added(case: &AdmissionCase) -> Vec<Reference> {
    let AdmissionCase { new, old, namespace, .. } = case;
    let deleting = !new["metadata"]["deletionTimestamp"].is_null();
    if deleting || old.as_ref().is_some_and(|old| old["spec"] == new["spec"]) {
        return Vec::new();
    }
    let of = |object: &Value| -> Vec<Reference> {
        let spec: Option<LlamaStackDistributionSpec> = serde_json::from_value(object["spec"].clone()).ok();
        spec.map(|spec| references(&spec, namespace)).unwrap_or_default()
    };
    let before = old.as_ref().map(of).unwrap_or_default();
    let known = |new: &Reference| before.iter().any(|old| old.named == new.named && old.keys == new.keys);
    of(new).into_iter().filter(|reference| !known(reference)).collect()
}

fn config_namespace(object: &Value) -> Option<String> {
    let older = convert(object.clone(), "llamastack.io/v1alpha1").ok()?.object;
    let namespace = older.pointer("/spec/server/userConfig/configMapNamespace")?.as_str()?;
    (!namespace.is_empty()).then(|| namespace.to_owned())
}

/// The keys of a Secret or a ConfigMap: values are skipped while reading.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeysOnly {
    metadata: ImageLabels,
    data: Option<BTreeMap<String, IgnoredAny>>,
    binary_data: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Deserialize)]
struct ImageLabels {
    labels: Option<BTreeMap<String, String>>,
}

/// Looks up one reference of an object of the namespace. A ConfigMap of another namespace counts as absent unless its label
/// shares it with this one.
async fn find(server: &Server, named: &ReferencedObject, namespace: &str) -> Result<ReferenceState, CallError> {
    let home = named.namespace == namespace;
    // An invalid name cannot exist, and in a URL it might be the path of another object.
    if !(is_name(&named.name) && is_name(&named.namespace)) || (named.kind == ReferenceKind::Secret && !home) {
        return Ok(ReferenceState::Missing);
    }
    let all = match named.kind {
        ReferenceKind::Secret => Secret::url_path(&(), Some(&named.namespace)),
        ReferenceKind::ConfigMap => ConfigMap::url_path(&(), Some(&named.namespace)),
    };
    let request = Request::get(format!("{all}/{}", named.name)).body(Vec::new());
    let request = request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)));
    let read = match server.call(async { server.client.request::<KeysOnly>(request?).await }).await {
        Ok(read) => read,
        Err(CallError::Answered { code: 404, .. }) => return Ok(ReferenceState::Missing),
        Err(error) => return Err(error),
    };
    if !home && !is_shared_with(&read.metadata.labels.unwrap_or_default(), namespace) {
        return Ok(ReferenceState::Missing);
    }
    let keys: BTreeSet<String> = read.data.into_iter().chain(read.binary_data).flatten().map(|(key, _)| key).collect();
    Ok(ReferenceState::Exists(Some(keys)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_values_are_not_retained() {
        let text = r#"{"metadata": {}, "data": {"a": "aHVzaA=="}, "binaryData": {"b": "aHVzaA=="}}"#;
        let read: KeysOnly = serde_json::from_str(text).unwrap();
        let keys: Vec<_> = read.data.into_iter().chain(read.binary_data).flatten().map(|(key, _)| key).collect();
        assert_eq!(keys, ["a", "b"]);
    }
}
