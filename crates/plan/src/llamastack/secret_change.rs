//! Secrets that changed after the pods were started: the server reads them only at its start.

use steersman_reconcile::{Finding, Message};

use super::annotations::{RESTART_ON_SECRET_CHANGE, is_on};
use super::names;
use super::snapshot::Snapshot;
use crate::content_hash;

/// Pod annotation with the versions of the Secrets. Another value restarts the pods.
pub const VERSIONS: &str = "steersman.dev/secret-versions";

/// The value of [`VERSIONS`] for the pods. The live value stays if the object does not ask for restarts any more, because
/// its removal would be a restart.
pub fn pod_annotation(snapshot: &Snapshot) -> Option<String> {
    let live = snapshot.deployment.as_ref().map(|live| &live.template["metadata"]["annotations"][VERSIONS]);
    versions(snapshot).or_else(|| live?.as_str().map(str::to_owned))
}

/// The current versions of the Secrets. None: the object does not ask for restarts, or refers to no Secret.
fn versions(snapshot: &Snapshot) -> Option<String> {
    if snapshot.secrets.is_empty() || !is_on(&snapshot.object, RESTART_ON_SECRET_CHANGE) {
        return None;
    }
    let mut versions: Vec<String> =
        snapshot.secrets.iter().map(|secret| format!("{}={}", secret.name, secret.version)).collect();
    versions.sort_unstable();
    Some(content_hash::hex(&versions.join(","))[..16].to_owned())
}

pub fn finding(snapshot: &Snapshot) -> Option<Finding<Message>> {
    let started = snapshot.oldest_pod.filter(|_| versions(snapshot).is_none())?;
    let is_newer = |changed: &jiff::Timestamp| *changed > started;
    let changed = snapshot.secrets.iter().filter(|secret| secret.changed.as_ref().is_some_and(is_newer));
    let mut changed: Vec<&str> = changed.map(|secret| secret.name.as_str()).collect();
    changed.sort_unstable();
    if changed.is_empty() {
        return None;
    }
    let object = &snapshot.object;
    let message = format!(
        "Pods of the server are older than the last change of Secret {}. The server reads Secrets and certificates only \
         at its start.",
        changed.join(", ")
    );
    let remedy = format!(
        "To restart it: kubectl rollout restart deployment {} -n {}. To restart it with every change, set the annotation \
         {RESTART_ON_SECRET_CHANGE} to \"true\".",
        names::deployment(&object.name),
        object.namespace
    );
    Some(Finding::info("SecretChanged", message, remedy))
}
