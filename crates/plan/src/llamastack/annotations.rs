//! Annotations of the object that switch something on. They exist because the API has no fields for it.

use steersman_reconcile::{Finding, Message, message, path};

use super::snapshot::ObservedObject;

/// Annotations of Steersman's own.
pub const PREFIX: &str = "steersman.dev/";
/// `true`: the PersistentVolumeClaim outlives the object.
pub const KEEP_VOLUME: &str = "steersman.dev/keep-volume";
/// `true`: a change of a referenced Secret restarts the server.
pub const RESTART_ON_SECRET_CHANGE: &str = "steersman.dev/restart-on-secret-change";

const SWITCHES: [&str; 2] = [KEEP_VOLUME, RESTART_ON_SECRET_CHANGE];

pub fn is_on(object: &ObservedObject, annotation: &str) -> bool {
    object.annotations.get(annotation).is_some_and(|value| value == "true")
}

/// A value that is neither `true` nor `false` counts as `false`.
pub fn finding(object: &ObservedObject) -> Option<Finding<Message>> {
    let is_unclear = |annotation: &&str| {
        object.annotations.get(*annotation).is_some_and(|value| !["true", "false"].contains(&value.as_str()))
    };
    let annotation = SWITCHES.into_iter().find(is_unclear)?;
    let path = path!(metadata.annotations).key(annotation);
    let message = message![path, " is neither \"true\" nor \"false\", so it has no effect."];
    Some(Finding::warning("AnnotationIgnored", message, "Set it to \"true\", or remove it."))
}
