//! Which workload is meant.
//! Comes in: a reference as users write it, or the owner of a pod; goes out: one name for one workload, however it was written.

use serde::Serialize;
use steersman_api::variant::v1alpha1::{DecidedTarget, ScaleTargetRef};

pub const DEPLOYMENT: &str = "Deployment";
pub const STATEFUL_SET: &str = "StatefulSet";
pub const LEADER_WORKER_SET: &str = "LeaderWorkerSet";
pub const APPS: &str = "apps";
pub const GROUPS: &str = "leaderworkerset.x-k8s.io";

/// Unique within a namespace: kinds have names of their own, and groups have kinds of their own.
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

    /// Whose the group is, in `group/version` or, of the core, `version`.
    pub fn group_of(api_version: &str) -> &str {
        api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Without a copy, as each pod is compared.
    pub fn is(&self, target: &ScaleTargetRef) -> bool {
        let group = Self::group_of(target.api_version.as_deref().unwrap_or_default());
        self.name == target.name && self.kind == target.kind && self.group == meant(group, &target.kind)
    }
}

/// Whether a decision for `decided` is one for `target`, however both write the group.
pub fn is_decided_for(decided: &DecidedTarget, target: &ScaleTargetRef) -> bool {
    let decided_group = TargetName::group_of(decided.api_version.as_deref().unwrap_or_default());
    let target_group = TargetName::group_of(target.api_version.as_deref().unwrap_or_default());
    decided.name == target.name
        && decided.kind == target.kind
        && meant(decided_group, &target.kind) == meant(target_group, &target.kind)
}

/// Of kinds that everybody knows the group may be left out.
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
