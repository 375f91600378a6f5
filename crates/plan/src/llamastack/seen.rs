//! Everything that counts for one object, as plain data.
//! Comes in: the object, its live children and the operator's settings; goes out: nothing, this is what the plan reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;
use serde_json::Value;
use steersman_api::llamastack::status::ProviderInfo;
use steersman_api::llamastack::v1alpha1::{LlamaStackDistributionSpec, LlamaStackDistributionStatus};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    pub now: Timestamp,
    pub settings: Settings,
    pub object: ObjectSeen,
    /// The Deployment with the object's name. None: there is none.
    pub deployment: Option<DeploymentSeen>,
    /// None: there is none.
    pub volume_claim: Option<ClaimSeen>,
    /// Whether the object's Service is there.
    pub service: bool,
    pub server: ServerSeen,
}

/// What the operator was told when it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    pub operator_version: String,
    /// Images by the name of their distribution.
    pub distributions: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectSeen {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: Option<i64>,
    /// It has a deletion timestamp.
    pub deleting: bool,
    pub spec: LlamaStackDistributionSpec,
    /// Fields of the object that v1alpha1, which this plan is made from, cannot say.
    pub beyond: Vec<String>,
    /// As stored.
    pub status: Option<LlamaStackDistributionStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeploymentSeen {
    pub generation: Option<i64>,
    /// Of its status: the generation that the numbers below speak of.
    pub observed_generation: Option<i64>,
    /// Of its spec.
    pub replicas: Option<i32>,
    pub replicas_owner: ReplicasOwner,
    /// Of its status; absent counts as 0, as the API server leaves out zeros.
    pub ready: i32,
    pub updated: i32,
    /// All its pods, those of older templates too.
    pub pods: i32,
    /// What the Deployment says is in its way.
    pub trouble: Option<String>,
    /// An earlier operator made it, and it has not been taken over yet.
    pub legacy: bool,
    /// The mark of a take-over.
    pub adopted: Option<String>,
    /// `spec.template` as it lives.
    pub template: Value,
    pub resource_version: Option<String>,
}

/// Who decides on `spec.replicas` of the live Deployment, by its managed fields. A Go operator that is being replaced
/// (`manager`, or the object's name) does not count as another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicasOwner {
    /// Steersman alone, or nobody.
    #[default]
    Ours,
    /// Somebody else, such as an autoscaler: the name of that field manager.
    Other(String),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimSeen {
    /// `Pending`, `Bound` or `Lost`; None before the first.
    pub phase: Option<String>,
    /// What it requests.
    pub size: Option<Quantity>,
}

/// What the running server says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerSeen {
    /// Not asked: what it said before still counts.
    #[default]
    NotAsked,
    /// Asked, and this is why there is no answer.
    Silent(String),
    Answered {
        version: Option<String>,
        providers: Vec<ProviderInfo>,
    },
}
