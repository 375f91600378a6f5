//! Group, kind, names and versions of each API, for CRDs, RBAC, flags and messages.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// An API that Steersman serves. All lists have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// `DynamoGraphDeploymentRequest`: a request to serve a model within an SLA.
    Dgdr,
    /// `DynamoGraphDeployment`: the components that are generated for a request.
    Dgd,
    /// `LlamaStackDistribution`: a Llama Stack server with its providers.
    Llsd,
    /// `VariantAutoscaling`: one variant of a served model, scaled together with the others.
    Va,
}

impl Family {
    pub const ALL: [Self; 4] = [Self::Dgdr, Self::Dgd, Self::Llsd, Self::Va];

    pub const fn group(self) -> &'static str {
        match self {
            Self::Dgdr | Self::Dgd => "nvidia.com",
            Self::Llsd => "llamastack.io",
            Self::Va => "llmd.ai",
        }
    }

    pub const fn kind(self) -> &'static str {
        match self {
            Self::Dgdr => "DynamoGraphDeploymentRequest",
            Self::Dgd => "DynamoGraphDeployment",
            Self::Llsd => "LlamaStackDistribution",
            Self::Va => "VariantAutoscaling",
        }
    }

    pub const fn plural(self) -> &'static str {
        match self {
            Self::Dgdr => "dynamographdeploymentrequests",
            Self::Dgd => "dynamographdeployments",
            Self::Llsd => "llamastackdistributions",
            Self::Va => "variantautoscalings",
        }
    }

    /// Short name for `kubectl get`, and name of the controller.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::Dgdr => "dgdr",
            Self::Dgd => "dgd",
            Self::Llsd => "llsd",
            Self::Va => "va",
        }
    }

    pub const fn crd_name(self) -> &'static str {
        match self {
            Self::Dgdr => "dynamographdeploymentrequests.nvidia.com",
            Self::Dgd => "dynamographdeployments.nvidia.com",
            Self::Llsd => "llamastackdistributions.llamastack.io",
            Self::Va => "variantautoscalings.llmd.ai",
        }
    }

    /// Versions, oldest first; the last one is the storage version.
    pub const fn served_versions(self) -> &'static [&'static str] {
        match self {
            Self::Dgdr | Self::Dgd => &["v1alpha1", "v1beta1"],
            Self::Llsd => &["v1alpha1", "v1alpha2"],
            Self::Va => &["v1alpha1"],
        }
    }

    pub const fn storage_version(self) -> &'static str {
        match self.served_versions() {
            [.., last] => last,
            [] => "",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.short_name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {given:?}; the names are {}", Family::ALL.map(Family::short_name).join(", "))]
pub struct UnknownFamily {
    pub given: String,
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(given: &str) -> Result<Self, UnknownFamily> {
        Self::ALL
            .into_iter()
            .find(|family| family.short_name() == given)
            .ok_or_else(|| UnknownFamily { given: given.to_owned() })
    }
}

/// The Lease that an earlier operator of the same objects holds while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LegacyLease {
    pub name: &'static str,
    /// Name of the operator for messages.
    pub operator: &'static str,
    /// APIs whose objects that earlier operator writes.
    pub families: &'static [Family],
}

/// Leases of earlier operators. Their namespaces are unknown: users choose them at installation.
pub const LEGACY_LEASES: [LegacyLease; 4] = [
    LegacyLease {
        name: "dynamo.nvidia.com",
        operator: "NVIDIA's Dynamo operator",
        families: &[Family::Dgdr, Family::Dgd],
    },
    LegacyLease {
        name: "dynamo-operator-namespace-scope",
        operator: "a Dynamo operator restricted to this namespace",
        families: &[Family::Dgdr, Family::Dgd],
    },
    LegacyLease { name: "54e06e98.llamastack.io", operator: "the Llama Stack operator", families: &[Family::Llsd] },
    LegacyLease { name: "72dd1cf1.llm-d.ai", operator: "the workload-variant-autoscaler", families: &[Family::Va] },
];
