//! The observed state of one object, as plain data: the object, its live children, what it refers to and the operator's
//! settings. Plan and status read nothing else.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use steersman_api::Family;
use steersman_api::llamastack::status::ProviderInfo;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, LlamaStackDistributionStatus};
use steersman_reconcile::{FieldNames, FieldPath};

use super::operator_config::OperatorConfig;
use crate::field_names::field_names;
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
    pub has_legacy_policy: bool,
    /// ConfigMaps with configurations that were generated for the object, and that it controls.
    pub config_maps: Vec<ObservedConfigMap>,
    /// The ConfigMaps that ReplicaSets with pods use. None: not read, so that none is removed.
    pub in_use: Option<BTreeSet<String>>,
    /// The Secrets and ConfigMaps that the spec references.
    pub references: Vec<ObservedReference>,
    pub trust: ObservedTrust,
    /// The Secrets that the pods read.
    pub secrets: Vec<ObservedSecret>,
    /// Whether watches report every change of the referenced objects. False: they have to be read again.
    pub followed: bool,
    /// The labels of the image, which may hold its base configuration.
    pub labels: ObservedLabels,
    /// Whether the cluster has the ClusterRole with which OpenShift lets pods run as any user.
    pub any_user: bool,
    /// The pods of the Deployment, newest first, without those that are being deleted. Absent until the first list is complete.
    pub pods: Option<Vec<ObservedPod>>,
    /// The first start of the pods that run. Absent if none runs.
    pub oldest_start: Option<Timestamp>,
    pub server: ObservedServer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub operator_version: String,
    pub distributions: BTreeMap<String, String>,
    /// Image of the operator, which the init containers use. None: unknown.
    pub operator_image: Option<String>,
    /// Namespace of the operator. None: unknown.
    pub operator_namespace: Option<String>,
    /// Secrets are not read: referenced ones count as existing.
    pub ignores_secrets: bool,
    /// Settings of the operator's ConfigMap. `distributions` includes its images.
    pub operator_config: OperatorConfig,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedObject {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: Option<i64>,
    pub deleting: bool,
    /// The API version in which the spec was last written, such as `v1alpha1`. Empty: unknown, so the stored one.
    pub written_in: String,
    pub spec: LlamaStackDistributionSpec,
    /// Paths of the stored spec that decoding lost.
    pub unread: Vec<FieldPath>,
    pub v1alpha1: V1alpha1Fields,
    /// The annotations under `steersman.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// Value of the annotation `steersman.dev/provider-merge`.
    pub provider_merge: Option<String>,
    /// The stored status.
    pub status: Option<LlamaStackDistributionStatus>,
}

impl ObservedObject {
    /// Field paths in the version of the object's author.
    pub fn field_names(&self) -> FieldNames {
        field_names(Family::Llsd, &self.written_in)
    }
}

/// Fields of v1alpha1 that v1alpha2 does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct V1alpha1Fields {
    /// `spec.server`, whole: the pods of an earlier operator were made from it.
    pub server: Value,
    pub container_name: Option<String>,
    /// Namespace of the ConfigMap of `overrideConfig`, if it is not that of the object.
    pub config_namespace: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedDeployment {
    pub generation: Option<i64>,
    /// `status.observedGeneration`: the generation that the counts below are about.
    pub observed_generation: Option<i64>,
    /// `spec.replicas`.
    pub replicas: Option<i32>,
    pub replicas_owner: ReplicasOwner,
    /// `status.readyReplicas`; the API server omits zeros.
    pub ready: i32,
    pub updated: i32,
    /// All pods, including those of older templates.
    pub pods: i32,
    /// The problem that the Deployment reports.
    pub trouble: Option<String>,
    /// An earlier operator created it, and it is not adopted yet.
    pub legacy: bool,
    /// Value of the label `steersman.dev/adopted`.
    pub adopted: Option<String>,
    /// The live `spec.template`.
    pub template: Value,
    pub resource_version: Option<String>,
}

/// The owner of `spec.replicas` of the live Deployment, by its managed fields. A Go operator that is being replaced
/// (`manager`, or the object's name) does not count as another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplicasOwner {
    /// Steersman alone, or no field manager.
    #[default]
    Ours,
    /// Another field manager, by its name.
    Other(String),
    /// A HorizontalPodAutoscaler that the object does not own, by its name.
    Autoscaler(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedClaim {
    /// `Pending`, `Bound` or `Lost`, or `Terminating` while it is being deleted. None: not set yet.
    pub phase: Option<String>,
    pub size: Option<Quantity>,
    /// Whether it is deleted with the object.
    pub owned: bool,
    /// Whether pods on several nodes can mount it.
    pub shared: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedIngress {
    /// Host name or IP address of the load balancer. None: not assigned yet.
    pub address: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ObservedRoute {
    /// The cluster does not serve Routes.
    #[default]
    NotServed,
    /// There is no Route yet, or no router has answered.
    Unanswered,
    Admitted {
        host: String,
    },
    /// Every router that has answered refuses it, for this reason.
    Refused(String),
}

impl ObservedRoute {
    /// Whether there is a router: some clusters have the API alone.
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

/// A Secret or ConfigMap that the spec references. It never holds a value of a Secret.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedReference {
    pub secret: bool,
    pub namespace: String,
    pub name: String,
    /// None: the object does not exist.
    pub keys: Option<BTreeSet<String>>,
    /// The whole content of a ConfigMap.
    pub content: Option<BTreeMap<String, String>>,
}

/// The version of a Secret. It never holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedSecret {
    pub name: String,
    /// `resourceVersion`. None: pods need the Secret, and it does not exist.
    pub version: Option<String>,
    /// Time of the last change of its data. None: the API server does not know.
    pub changed: Option<Timestamp>,
}

/// The content of ConfigMaps with CA certificates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObservedTrust {
    /// The ConfigMap of `spec.networking.tls.caBundle`. None: not set, or missing.
    pub named: Option<BTreeMap<String, String>>,
    /// The ConfigMap that Open Data Hub maintains in the namespace. None: missing.
    pub cluster: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum ObservedServer {
    /// No response yet; the stored result stays in effect.
    #[default]
    Pending,
    /// The last poll did not get to the server, for this reason: its name cannot be resolved, for example. The server may
    /// serve others.
    Failed(String),
    /// The server does not listen, does not answer in time, or answers that it does not work, for this reason.
    Unhealthy(String),
    Answered {
        /// None: the response has none.
        version: Option<String>,
        /// None: the server requires credentials for them.
        providers: Option<Vec<ProviderInfo>>,
    },
}
