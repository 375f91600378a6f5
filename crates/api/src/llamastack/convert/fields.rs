//! The fields that both versions have, and the conversion of their values.

use serde_json::{Value, json};

use crate::convert::{SharedField, StoredLocation};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LlsdVersion {
    V1alpha1,
    V1alpha2,
}

impl LlsdVersion {
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
pub(super) enum ValueConversion {
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
pub(super) struct FieldPair {
    v1alpha1: &'static [&'static str],
    v1alpha2: &'static [&'static str],
    pub conversion: ValueConversion,
}

const fn same(v1alpha1: &'static [&'static str], v1alpha2: &'static [&'static str]) -> FieldPair {
    FieldPair { v1alpha1, v1alpha2, conversion: ValueConversion::Same }
}

/// Paths below `spec`. The parents of a path are sections, which exist for their fields only.
pub(super) static FIELD_PAIRS: [FieldPair; 20] = [
    same(&["replicas"], &["workload", "replicas"]),
    same(&["server", "distribution"], &["distribution"]),
    same(&["server", "workers"], &["workload", "workers"]),
    FieldPair {
        v1alpha1: &["server", "containerSpec", "port"],
        v1alpha2: &["networking", "port"],
        conversion: ValueConversion::Port,
    },
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
    FieldPair {
        v1alpha1: &["server", "userConfig"],
        v1alpha2: &["overrideConfig"],
        conversion: ValueConversion::Config,
    },
    same(&["server", "tlsConfig", "caBundle"], &["networking", "tls", "caBundle"]),
    FieldPair {
        v1alpha1: &["network", "exposeRoute"],
        v1alpha2: &["networking", "expose"],
        conversion: ValueConversion::Exposure,
    },
    same(&["network", "allowedFrom"], &["networking", "allowedFrom"]),
];

/// Sections that correspond to each other, although some of their fields do not.
const SECTIONS: [SharedField; 2] =
    [section(&["workload"], &["server"]), section(&["workload", "overrides"], &["server", "podOverrides"])];

const fn section(v1alpha2: &'static [&'static str], v1alpha1: &'static [&'static str]) -> SharedField {
    SharedField { stored: StoredLocation::Spec(v1alpha2), written: v1alpha1, with_content: false }
}

/// The fields of v1alpha1 that v1alpha2 has.
pub fn shared_fields() -> Vec<SharedField> {
    let fields = FIELD_PAIRS.iter().map(|pair| SharedField {
        stored: StoredLocation::Spec(pair.v1alpha2),
        written: pair.v1alpha1,
        // v1alpha1 has a boolean where v1alpha2 has an object.
        with_content: pair.conversion != ValueConversion::Exposure,
    });
    fields.chain(SECTIONS).collect()
}

/// Short names of fields of `workload` in v1alpha2, and the fields that they mean.
pub(super) const SHORT_NAMES: [(&str, &str); 2] =
    [("pdb", "podDisruptionBudget"), ("topologySpread", "topologySpreadConstraints")];

/// Sections of v1alpha2 from which a configuration is generated. They exclude `overrideConfig`.
pub(super) const GENERATED_SECTIONS: [&str; 4] = ["providers", "resources", "storage", "disabled"];

/// Fields of the status that only v1alpha2 has. All other fields have the same name in both versions.
pub(super) const V1ALPHA2_STATUS_FIELDS: [&str; 5] =
    ["resolvedDistribution", "configGeneration", "findings", "deployedConfigMapName", "podProblem"];

impl FieldPair {
    pub fn path(&self, version: LlsdVersion) -> &'static [&'static str] {
        match version {
            LlsdVersion::V1alpha1 => self.v1alpha1,
            LlsdVersion::V1alpha2 => self.v1alpha2,
        }
    }

    /// Converts a `value` of version `from`. `None` if the other version cannot express it.
    pub fn convert_value(&self, from: LlsdVersion, value: &Value) -> Option<Value> {
        match self.conversion {
            ValueConversion::Same => Some(value.clone()),
            ValueConversion::Port => value.as_f64().is_none_or(|port| port > 0.0).then(|| value.clone()),
            ValueConversion::Config => {
                let name = value.get("configMapName").filter(|name| *name != "")?;
                Some(json!({ "configMapName": name }))
            }
            ValueConversion::Exposure => match (from, value) {
                (_, Value::Bool(_)) => Some(value.clone()),
                (LlsdVersion::V1alpha2, Value::Object(expose)) => {
                    Some(expose.get("enabled").cloned().unwrap_or(true.into())).filter(Value::is_boolean)
                }
                _ => None,
            },
        }
    }

    /// The `value` of `version` after conversion to the other version and back.
    pub fn round_trip(&self, version: LlsdVersion, value: &Value) -> Option<Value> {
        let converted = self.convert_value(version, value)?;
        self.convert_value(version.other(), &converted)
    }
}

/// Meaning of a name in a section of the spec.
pub(super) enum SpecNode {
    Section(&'static str),
    Field(&'static FieldPair),
    /// A field that the other version does not have, or that no version has.
    Unpaired,
}

pub(super) fn node_at(version: LlsdVersion, section: &[&'static str], name: &str) -> SpecNode {
    let depth = section.len();
    let found = FIELD_PAIRS.iter().find(|pair| {
        let path = pair.path(version);
        path.get(depth).is_some_and(|step| *step == name) && path[..depth] == *section
    });
    match found {
        Some(pair) if pair.path(version).len() == depth + 1 => SpecNode::Field(pair),
        Some(pair) => SpecNode::Section(pair.path(version)[depth]),
        None => SpecNode::Unpaired,
    }
}
