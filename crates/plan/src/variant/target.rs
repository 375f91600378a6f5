//! Identifies a scale target by one name, however its API version is written.

use serde::Serialize;
use steersman_api::variant::v1alpha1::{DecidedTarget, ScaleTargetRef};

pub const DEPLOYMENT: &str = "Deployment";
pub const STATEFUL_SET: &str = "StatefulSet";
pub const LEADER_WORKER_SET: &str = "LeaderWorkerSet";
pub const APPS: &str = "apps";
pub const GROUPS: &str = "leaderworkerset.x-k8s.io";

/// Unique within a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TargetName {
    pub group: String,
    pub kind: String,
    pub name: String,
}

impl TargetName {
    pub fn new(group: &str, kind: &str, name: &str) -> Self {
        Self { group: meant(group, kind).to_owned(), kind: kind.to_owned(), name: name.to_owned() }
    }

    /// The group of an `apiVersion`, which is `group/version`, or `version` for the core group.
    pub fn group_of(api_version: &str) -> &str {
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Compares without allocating, because it runs for each pod.
    pub fn is(&self, target: &ScaleTargetRef) -> bool {
        let group = Self::group_of(target.api_version.as_deref().unwrap_or_default());
        self.name == target.name && self.kind == target.kind && self.group == meant(group, &target.kind)
    }
}

/// Whether both name the same object, however each writes the group.
pub fn is_decided_for(decided: &DecidedTarget, target: &ScaleTargetRef) -> bool {
    let decided_group = TargetName::group_of(decided.api_version.as_deref().unwrap_or_default());
    let target_group = TargetName::group_of(target.api_version.as_deref().unwrap_or_default());
    decided.name == target.name
        && decided.kind == target.kind
        && meant(decided_group, &target.kind) == meant(target_group, &target.kind)
}

/// Adds the group to well-known kinds, for which users may leave it out.
fn meant<'a>(group: &'a str, kind: &str) -> &'a str {
    match (kind, group) {
        (DEPLOYMENT, "" | "extensions") | (STATEFUL_SET, "") => APPS,
        (LEADER_WORKER_SET, "") => GROUPS,
        _ => group,
    }
}

impl From<&ScaleTargetRef> for TargetName {
    fn from(target: &ScaleTargetRef) -> Self {
        let api_version = target.api_version.as_deref().unwrap_or_default();
        Self::new(Self::group_of(api_version), &target.kind, &target.name)
    }
}
