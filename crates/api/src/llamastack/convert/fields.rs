//! The fields that both versions have, and how their values differ.

use serde_json::{Value, json};

use crate::convert::{SharedField, StoredPlace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1alpha1,
    V1alpha2,
}

impl Version {
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => "v1alpha1",
            Self::V1alpha2 => "v1alpha2",
        }
    }

    pub const fn other(self) -> Self {
        match self {
            Self::V1alpha1 => Self::V1alpha2,
            Self::V1alpha2 => Self::V1alpha1,
        }
    }
}

/// Conversion of a value between the two fields of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The value is the same, even one of a wrong type: validation then reports it in both versions.
    Same,
    /// A port of 0 is the default in v1alpha1, and invalid in v1alpha2.
    Port,
    /// v1alpha2 has only the name of `userConfig`, which must not be empty; an empty name in v1alpha1 means none.
    Config,
    /// A boolean in v1alpha1, a boolean or an object in v1alpha2.
    Exposure,
}

/// Two fields of the same meaning, with all their content.
#[derive(Debug)]
pub(super) struct Pair {
    v1alpha1: &'static [&'static str],
    v1alpha2: &'static [&'static str],
    pub turn: Turn,
}

const fn same(v1alpha1: &'static [&'static str], v1alpha2: &'static [&'static str]) -> Pair {
    Pair { v1alpha1, v1alpha2, turn: Turn::Same }
}

/// Paths below `spec`. The parents of a path are sections, which exist for their fields only.
pub(super) static PAIRS: [Pair; 20] = [
    same(&["replicas"], &["workload", "replicas"]),
    same(&["server", "distribution"], &["distribution"]),
    same(&["server", "workers"], &["workload", "workers"]),
    Pair { v1alpha1: &["server", "containerSpec", "port"], v1alpha2: &["networking", "port"], turn: Turn::Port },
    same(&["server", "containerSpec", "resources"], &["workload", "resources"]),
    same(&["server", "containerSpec", "env"], &["workload", "overrides", "env"]),
    same(&["server", "containerSpec", "command"], &["workload", "overrides", "command"]),
    same(&["server", "containerSpec", "args"], &["workload", "overrides", "args"]),
    same(&["server", "podOverrides", "serviceAccountName"], &["workload", "overrides", "serviceAccountName"]),
    same(
        &["server", "podOverrides", "terminationGracePeriodSeconds"],
        &["workload", "overrides", "terminationGracePeriodSeconds"],
    ),
    same(&["server", "podOverrides", "volumes"], &["workload", "overrides", "volumes"]),
    same(&["server", "podOverrides", "volumeMounts"], &["workload", "overrides", "volumeMounts"]),
    same(&["server", "podDisruptionBudget"], &["workload", "podDisruptionBudget"]),
    same(&["server", "topologySpreadConstraints"], &["workload", "topologySpreadConstraints"]),
    same(&["server", "autoscaling"], &["workload", "autoscaling"]),
    same(&["server", "storage"], &["workload", "storage"]),
    Pair { v1alpha1: &["server", "userConfig"], v1alpha2: &["overrideConfig"], turn: Turn::Config },
    same(&["server", "tlsConfig", "caBundle"], &["networking", "tls", "caBundle"]),
    Pair { v1alpha1: &["network", "exposeRoute"], v1alpha2: &["networking", "expose"], turn: Turn::Exposure },
    same(&["network", "allowedFrom"], &["networking", "allowedFrom"]),
];

/// Sections that correspond to each other, although some of their fields do not.
const SECTIONS: [SharedField; 2] =
    [section(&["workload"], &["server"]), section(&["workload", "overrides"], &["server", "podOverrides"])];

const fn section(v1alpha2: &'static [&'static str], v1alpha1: &'static [&'static str]) -> SharedField {
    SharedField { stored: StoredPlace::Spec(v1alpha2), written: v1alpha1, with_content: false }
}

/// The fields of v1alpha1 that v1alpha2 has.
pub fn shared_fields() -> Vec<SharedField> {
    let fields = PAIRS.iter().map(|pair| SharedField {
        stored: StoredPlace::Spec(pair.v1alpha2),
        written: pair.v1alpha1,
        // v1alpha1 has a boolean where v1alpha2 has an object.
        with_content: pair.turn != Turn::Exposure,
    });
    fields.chain(SECTIONS).collect()
}

/// Fields of v1alpha2 that exclude `overrideConfig`.
pub(super) const GENERATED: [&str; 4] = ["providers", "resources", "storage", "disabled"];

/// Fields of the status that only v1alpha2 has; all others have the same name in both.
pub(super) const STATUS: [&str; 5] =
    ["resolvedDistribution", "configGeneration", "findings", "deployedConfigMapName", "podProblem"];

impl Pair {
    pub fn path(&self, version: Version) -> &'static [&'static str] {
        match version {
            Version::V1alpha1 => self.v1alpha1,
            Version::V1alpha2 => self.v1alpha2,
        }
    }

    /// The counterpart of `value` of `from` in the other version. `None` if that version cannot express it.
    pub fn said(&self, from: Version, value: &Value) -> Option<Value> {
        match self.turn {
            Turn::Same => Some(value.clone()),
            Turn::Port => value.as_f64().is_none_or(|port| port > 0.0).then(|| value.clone()),
            Turn::Config => {
                let name = value.get("configMapName").filter(|name| *name != "")?;
                Some(json!({ "configMapName": name }))
            }
            Turn::Exposure => match (from, value) {
                (_, Value::Bool(_)) => Some(value.clone()),
                (Version::V1alpha2, Value::Object(expose)) => {
                    Some(expose.get("enabled").cloned().unwrap_or(true.into())).filter(Value::is_boolean)
                }
                _ => None,
            },
        }
    }

    /// The `value` of `version` after conversion to the other version and back.
    pub fn returned(&self, version: Version, value: &Value) -> Option<Value> {
        self.said(version, value).and_then(|said| self.said(version.other(), &said))
    }
}

/// Meaning of a name in a section of the spec.
pub(super) enum Node {
    Section(&'static str),
    Field(&'static Pair),
    /// A field that the other version does not have, or that no version has.
    Alone,
}

pub(super) fn node(version: Version, section: &[&'static str], name: &str) -> Node {
    let depth = section.len();
    let found = PAIRS.iter().find(|pair| {
        let path = pair.path(version);
        path.get(depth).is_some_and(|step| *step == name) && path[..depth] == *section
    });
    match found {
        Some(pair) if pair.path(version).len() == depth + 1 => Node::Field(pair),
        Some(pair) => Node::Section(pair.path(version)[depth]),
        None => Node::Alone,
    }
}
