//! Looks up the Secrets and ConfigMaps that a request adds; keys are kept, values never.
//!
//! Lookups are bounded in number and in time: an object with 1,000 references is validated as quickly as one with two.
//! An object is looked up only if the requester may get it: the response, and the time until it, do not depend on others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use http::Request;
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
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
use steersman_runtime::client::{CallError, Server, is_allowed};
use steersman_runtime::store::references::is_name;
use tokio::sync::Semaphore;
use tokio::time;

use super::Rule;
use crate::installation::SecretAccess;
use crate::webhooks::case::AdmissionCase;

/// Most lookups for one request, more than a sensible object names.
const MAX_LOOKUPS: usize = 64;

/// Lookups in progress at a time, for one request and for all.
const CONCURRENCY: usize = 8;
const MAX_CONCURRENT_LOOKUPS: usize = 32;

/// Longest time for all lookups together. The webhook gives up at 8 s.
const MAX_LOOKUP_TIME: Duration = Duration::from_secs(4);

const LOOKUP_WHY: &str =
    "report at admission that a Secret or ConfigMap of a LlamaStackDistribution is missing; values are not stored";

/// Rules of the lookups.
pub fn rules() -> Vec<Rule> {
    let review = "check at admission whether the requester may get a Secret or ConfigMap, before its state is reported";
    vec![
        Rule::namespaced("", "configmaps", &["get"], LOOKUP_WHY),
        Rule::cluster("authorization.k8s.io", "subjectaccessreviews", &["create"], review),
    ]
}

/// Rules of the lookups of Secrets. RBAC has no smaller right, neither for existence nor for keys.
pub fn secret_rules() -> Vec<Rule> {
    vec![Rule::namespaced("", "secrets", &["get"], LOOKUP_WHY)]
}

/// The result of a lookup.
#[derive(Debug)]
enum Lookup {
    Found(ReferenceState),
    /// The requester may not get the object, so nothing is said about it.
    NotAllowed,
}

#[derive(Debug, Default)]
pub struct LookupResults {
    pub found: BTreeMap<ReferencedObject, ReferenceState>,
    /// A warning for each reference that was not looked up, with the reason.
    pub unknown: Vec<Message>,
    /// Namespace of the ConfigMap of `overrideConfig`, if not the object's own. The storage version has no field for it.
    pub config_namespace: Option<String>,
}

/// The references to look up for one request.
#[derive(Debug, Default)]
pub struct RequestedReferences {
    config_namespace: Option<String>,
    referenced: Vec<Reference>,
    /// Not looked up, because the operator may not read Secrets.
    ignored: Vec<Reference>,
    /// Not looked up, because there are too many.
    beyond: Vec<Reference>,
}

impl RequestedReferences {
    /// The references that the request adds, each object once.
    pub fn of(case: &AdmissionCase, secrets: SecretAccess) -> Self {
        let config_namespace = config_namespace(&case.new).filter(|namespace| *namespace != case.namespace);
        let (mut referenced, mut names): (Vec<Reference>, BTreeSet<ReferencedObject>) = Default::default();
        for reference in added(case) {
            let reference = reference.with_config_namespace(config_namespace.as_deref());
            if names.insert(reference.named.clone()) {
                referenced.push(reference);
            }
        }
        let is_ignored =
            |reference: &Reference| secrets == SecretAccess::None && reference.named.kind == ReferenceKind::Secret;
        let (ignored, mut referenced): (Vec<_>, Vec<_>) = referenced.into_iter().partition(is_ignored);
        let beyond = referenced.split_off(referenced.len().min(MAX_LOOKUPS));
        Self { config_namespace, referenced, ignored, beyond }
    }
}

/// Looks up references for all requests of an operator.
pub struct ReferenceLookups {
    server: Server,
    /// Places of the lookups in progress. A lookup that finds none in time is reported like a slow one.
    places: Semaphore,
}

impl ReferenceLookups {
    pub fn new(server: Server) -> Self {
        Self { server, places: Semaphore::new(MAX_CONCURRENT_LOOKUPS) }
    }

    pub async fn look_up(&self, case: &AdmissionCase, requested: &RequestedReferences) -> LookupResults {
        let RequestedReferences { config_namespace, referenced, ignored, beyond } = requested;
        let mut lookups = Vec::new();
        for reference in referenced {
            let named = reference.named.clone();
            lookups.push(async move {
                let _place = self.places.acquire().await;
                let found = find(&self.server, &named, case).await;
                (named, found)
            });
        }
        let lookups = stream::iter(lookups).buffer_unordered(CONCURRENCY).take_until(time::sleep(MAX_LOOKUP_TIME));
        let answers: Vec<(ReferencedObject, Result<Lookup, CallError>)> = lookups.collect().await;

        let mut results = LookupResults { config_namespace: config_namespace.clone(), ..LookupResults::default() };
        let (mut causes, mut not_allowed) = (BTreeMap::new(), BTreeSet::new());
        for (named, answer) in answers {
            match answer {
                Ok(Lookup::Found(state)) => _ = results.found.insert(named, state),
                Ok(Lookup::NotAllowed) => _ = not_allowed.insert(named),
                Err(error) => _ = causes.insert(named, error.to_string()),
            }
        }
        for reference in referenced.iter().filter(|reference| !results.found.contains_key(&reference.named)) {
            if not_allowed.contains(&reference.named) {
                results.unknown.push(unreported(reference));
                continue;
            }
            let late = || format!("no answer within {} s", MAX_LOOKUP_TIME.as_secs());
            let cause = causes.remove(&reference.named).unwrap_or_else(late);
            results.unknown.push(unknown(reference, &cause));
        }
        let too_many = format!("more than {MAX_LOOKUPS} objects are referenced");
        let not_read = "Steersman runs with --secrets=none";
        results.unknown.extend(ignored.iter().map(|reference| unknown(reference, not_read)));
        results.unknown.extend(beyond.iter().map(|reference| unknown(reference, &too_many)));
        results
    }
}

fn unknown(reference: &Reference, cause: &str) -> Message {
    let ReferencedObject { kind, name, .. } = &reference.named;
    message![&reference.path, format!(": cannot check whether {kind:?} {name:?} exists: {cause}")]
}

/// The text for a requester who may not get the object, whether it exists or not.
fn unreported(reference: &Reference) -> Message {
    let ReferencedObject { kind, name, .. } = &reference.named;
    let text = format!(
        ": {kind:?} {name:?} could not be checked for you, because you may not get it; see the object's conditions"
    );
    message![&reference.path, text]
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
    let before: BTreeSet<(&ReferencedObject, &[String])> =
        before.iter().map(|old| (&old.named, old.keys.as_slice())).collect();
    let is_new = |new: &Reference| !before.contains(&(&new.named, new.keys.as_slice()));
    of(new).into_iter().filter(is_new).collect()
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

/// Looks up one reference. A ConfigMap of another namespace counts as absent unless its label shares it with the namespace of
/// the object. The label lets everybody use it who may write objects there, so the requester needs no other right.
async fn find(server: &Server, named: &ReferencedObject, case: &AdmissionCase) -> Result<Lookup, CallError> {
    let home = named.namespace == case.namespace;
    // An invalid name cannot exist, and in a URL it might be the path of another object.
    if !(is_name(&named.name) && is_name(&named.namespace)) || (named.kind == ReferenceKind::Secret && !home) {
        return Ok(Lookup::Found(ReferenceState::Missing));
    }
    if home && !may_get(server, &case.requester, named).await? {
        return Ok(Lookup::NotAllowed);
    }
    let all = match named.kind {
        ReferenceKind::Secret => Secret::url_path(&(), Some(&named.namespace)),
        ReferenceKind::ConfigMap => ConfigMap::url_path(&(), Some(&named.namespace)),
    };
    let request = Request::get(format!("{all}/{}", named.name)).body(Vec::new());
    let request = request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)));
    let read = match server.call(async { server.client.request::<KeysOnly>(request?).await }).await {
        Ok(read) => read,
        Err(CallError::Answered { code: 404, .. }) => return Ok(Lookup::Found(ReferenceState::Missing)),
        Err(error) => return Err(error),
    };
    if !home && !is_shared_with(&read.metadata.labels.unwrap_or_default(), &case.namespace) {
        return Ok(Lookup::Found(ReferenceState::Missing));
    }
    let keys: BTreeSet<String> = read.data.into_iter().chain(read.binary_data).flatten().map(|(key, _)| key).collect();
    Ok(Lookup::Found(ReferenceState::Exists(Some(keys))))
}

/// Whether the requester may get the object. A review without a user is allowed nothing.
async fn may_get(server: &Server, requester: &UserInfo, named: &ReferencedObject) -> Result<bool, CallError> {
    if requester.username.as_ref().is_none_or(String::is_empty) {
        return Ok(false);
    }
    let resource = match named.kind {
        ReferenceKind::Secret => Secret::plural(&()),
        ReferenceKind::ConfigMap => ConfigMap::plural(&()),
    };
    let attributes = ResourceAttributes {
        namespace: Some(named.namespace.clone()),
        name: Some(named.name.clone()),
        verb: Some("get".to_owned()),
        resource: Some(resource.into_owned()),
        ..ResourceAttributes::default()
    };
    let access =
        SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SubjectAccessReviewSpec::default() };
    is_allowed(server, requester.clone(), access).await
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
