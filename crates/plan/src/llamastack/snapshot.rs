//! The observed state of one object, as plain data: the object, its live children, what it refers to and the operator's
//! settings. Plan and status read nothing else.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use steersman_api::llamastack::status::ProviderInfo;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, LlamaStackDistributionStatus};
use steersman_reconcile::FieldPath;

use super::operator_config::OperatorConfig;
use crate::oci::ObservedLabels;
use crate::pods::ObservedPod;

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub now: Timestamp,
    pub settings: Settings,
    pub object: ObservedObject,
    /// The Deployment with the object's name. None: there is none.
    pub deployment: Option<ObservedDeployment>,
    pub volume_claim: Option<ObservedClaim>,
    pub service: bool,
    pub ingress: Option<ObservedIngress>,
    pub route: ObservedRoute,
    /// There is a NetworkPolicy that an earlier operator made and Steersman has never written.
    pub former_policy: bool,
    /// ConfigMaps with configurations that were generated for the object, and that it controls.
    pub config_maps: Vec<ObservedConfigMap>,
    /// The ConfigMaps that ReplicaSets with pods use. None: nobody looked, so that none is removed.
    pub in_use: Option<BTreeSet<String>>,
    /// What was looked up of the Secrets and ConfigMaps that the spec names.
    pub references: Vec<ObservedReference>,
    pub trust: ObservedTrust,
    /// Whether watches tell of every change to what the object refers to. False: only looking again shows it.
    pub followed: bool,
    /// What the labels of the image say of its configuration.
    pub labels: ObservedLabels,
    /// Whether the cluster has the ClusterRole with which OpenShift lets pods run as any user.
    pub any_user: bool,
    /// The pods of the Deployment, newest first, without those that are leaving. Absent until the first list is complete.
    pub pods: Option<Vec<ObservedPod>>,
    pub server: ObservedServer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub operator_version: String,
    pub distributions: BTreeMap<String, String>,
    /// Of the containers that run before the server. None: not known.
    pub operator_image: Option<String>,
    /// Where the operator runs. None: not known.
    pub operator_namespace: Option<String>,
    /// What its ConfigMap says. Its images are among the distributions already.
    pub operator_config: OperatorConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedObject {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: Option<i64>,
    pub deleting: bool,
    pub spec: LlamaStackDistributionSpec,
    /// Places of the spec that it was written with and that were lost in reading it.
    pub unread: Vec<FieldPath>,
    pub former: V1alpha1Fields,
    /// The value of the annotation that says how providers are merged.
    pub provider_merge: Option<String>,
    /// As stored.
    pub status: Option<LlamaStackDistributionStatus>,
}

/// What the object says in v1alpha1 and has no field for in v1alpha2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct V1alpha1Fields {
    /// `spec.server`, whole: the pods of an earlier operator were made from it.
    pub server: Value,
    pub container_name: Option<String>,
    /// Where the ConfigMap of `overrideConfig` is, if not beside the object.
    pub config_namespace: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedDeployment {
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplicasOwner {
    /// Steersman alone, or nobody.
    #[default]
    Ours,
    /// Somebody else: the name of that field manager.
    Other(String),
    /// A HorizontalPodAutoscaler that is not the object's own: its name.
    Autoscaler(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedClaim {
    /// `Pending`, `Bound` or `Lost`, or `Terminating` once somebody deleted it; None before the first.
    pub phase: Option<String>,
    pub size: Option<Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedIngress {
    /// Host name or else address of its load balancer. None: it has none yet.
    pub address: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObservedRoute {
    /// The cluster has no Routes: it is not one of OpenShift.
    #[default]
    NotServed,
    /// There is no Route yet, or no router has said anything of it.
    Unanswered,
    Admitted {
        host: String,
    },
    /// Every router that has answered refuses it; why.
    Refused(String),
}

impl ObservedRoute {
    /// Whether there is a router at all: where somebody installed the API alone, nobody answers.
    pub fn answered(&self) -> bool {
        matches!(self, Self::Admitted { .. } | Self::Refused(_))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedConfigMap {
    pub name: String,
    pub config_yaml: String,
    pub created: Option<Timestamp>,
}

/// One Secret or ConfigMap that the spec names. No value of a Secret is ever in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedReference {
    pub secret: bool,
    pub namespace: String,
    pub name: String,
    /// None: it is not there.
    pub keys: Option<BTreeSet<String>>,
    /// The whole content of the ConfigMap that `overrideConfig` names.
    pub content: Option<BTreeMap<String, String>>,
}

/// ConfigMaps with certificates, as they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedTrust {
    /// The one that the spec names. None: it names none, or there is none.
    pub named: Option<BTreeMap<String, String>>,
    /// The one that Open Data Hub keeps in the namespace. None: there is none.
    pub cluster: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ObservedServer {
    /// No word from it yet: what it said before still counts.
    #[default]
    Awaited,
    /// It was asked, and this is why there is no answer.
    Silent(String),
    Answered {
        /// None: it does not say.
        version: Option<String>,
        /// None: it tells them only to those who show credentials.
        providers: Option<Vec<ProviderInfo>>,
    },
}
