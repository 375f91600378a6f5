//! Secrets that changed after the pods were started: the server reads them only at its start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Volume};
use steersman_api::llamastack::v1alpha2::{FindingCode, LlamaStackDistributionSpec};
use steersman_reconcile::{Finding, Message};

use super::annotations::{RESTART_ON_SECRET_CHANGE, is_on};
use super::config::MAX_SECRET_REFERENCES;
use super::snapshot::{ObservedSecret, Snapshot};
use super::{fields, names, stored_status};
use crate::content_hash;

/// Pod annotation with the versions of the Secrets. Another value restarts the pods.
pub const VERSIONS: &str = "steersman.dev/secret-versions";

const CHANGED: &str = "SecretChanged";

/// The Secrets in the user's own variables and volumes, and whether pods do not start without them. At most
/// [`MAX_SECRET_REFERENCES`], so that one object causes a bounded number of reads.
pub fn pod_secrets(spec: &LlamaStackDistributionSpec) -> BTreeMap<String, bool> {
    let volumes = fields::overrides(spec).and_then(|given| given.volumes.as_deref()).unwrap_or_default();
    let used = fields::env(spec).iter().filter_map(of_variable).chain(volumes.iter().flat_map(of_volume));
    let mut secrets = BTreeMap::new();
    for (name, optional) in used.filter(|(name, _)| !name.is_empty()).take(MAX_SECRET_REFERENCES) {
        *secrets.entry(name.to_owned()).or_default() |= !optional;
    }
    secrets
}

fn of_variable(variable: &EnvVar) -> Option<(&str, bool)> {
    let key = variable.value_from.as_ref()?.secret_key_ref.as_ref()?;
    Some((&key.name, key.optional == Some(true)))
}

fn of_volume(volume: &Volume) -> Vec<(&str, bool)> {
    let secret =
        volume.secret.as_ref().and_then(|from| Some((from.secret_name.as_deref()?, from.optional == Some(true))));
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let projected = sources.filter_map(|source| {
        let from = source.secret.as_ref()?;
        Some((from.name.as_str(), from.optional == Some(true)))
    });
    secret.into_iter().chain(projected).collect()
}

/// The value of [`VERSIONS`] for the pods. The live value stays if the object does not ask for restarts any more, because
/// its removal would be a restart, and while a Secret is missing: new pods could not start without it.
pub fn pod_annotation(snapshot: &Snapshot) -> Option<String> {
    let live = snapshot.deployment.as_ref().map(|live| &live.template["metadata"]["annotations"][VERSIONS]);
    versions(snapshot).or_else(|| live?.as_str().map(str::to_owned))
}

/// The current versions of the Secrets. None: they must not restart the server, because the object does not ask for it or a
/// Secret is missing; or it refers to no Secret.
fn versions(snapshot: &Snapshot) -> Option<String> {
    if snapshot.secrets.is_empty() || !restarts(snapshot) {
        return None;
    }
    let version = |secret: &ObservedSecret| Some(format!("{}={}", secret.name, secret.version.as_ref()?));
    let mut versions: Vec<String> = snapshot.secrets.iter().map(version).collect::<Option<_>>()?;
    versions.sort_unstable();
    Some(content_hash::hex(&versions.join(","))[..16].to_owned())
}

fn restarts(snapshot: &Snapshot) -> bool {
    is_on(&snapshot.object, RESTART_ON_SECRET_CHANGE)
}

pub fn finding(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let started = snapshot.oldest_start.filter(|_| !restarts(snapshot))?;
    let is_newer = |changed: &jiff::Timestamp| *changed > started;
    let changed = snapshot.secrets.iter().filter(|secret| secret.changed.as_ref().is_some_and(is_newer));
    let mut changed: Vec<&str> = changed.map(|secret| secret.name.as_str()).collect();
    changed.sort_unstable();
    if changed.is_empty() {
        return None;
    }
    let object = &snapshot.object;
    let message = format!(
        "Pods of the server started before the last change of Secret {}. The server reads Secrets and certificates only \
         at its start.",
        changed.join(", ")
    );
    let remedy = format!(
        "To restart it: kubectl rollout restart deployment {} -n {}. To restart it with every change, set the annotation \
         {RESTART_ON_SECRET_CHANGE} to \"true\".",
        names::deployment(&object.name),
        object.namespace
    );
    Some(Finding::info(CHANGED, message, remedy))
}

/// The stored codes, if they differ from these only by the finding of this module while the pods are unknown. This happens
/// after each start of the operator and ends soon, so nothing is reported meanwhile.
pub fn stored_codes(snapshot: &Snapshot, codes: &[FindingCode]) -> Option<Vec<FindingCode>> {
    if snapshot.pods.is_some() || snapshot.secrets.is_empty() || restarts(snapshot) {
        return None;
    }
    let stored = stored_status::findings(snapshot)?;
    let others = stored.iter().filter(|code| code.reason != CHANGED);
    (others.clone().count() < stored.len() && others.eq(codes)).then(|| stored.to_vec())
}
