//! The observed state of one request, as plain data. A failed read ends the reconcile before, so absent means absent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestSpec, DynamoGraphDeploymentRequestStatus};

use super::hardware::ObservedHardware;
use crate::pods::ObservedPod;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    pub now: Timestamp,
    pub settings: Settings,
    pub object: ObservedObject,
    /// The Job with the name of the request's Job.
    pub job: Option<ObservedJob>,
    pub job_pods: Vec<ObservedPod>,
    /// The ConfigMap that the profiler's sidecar writes.
    pub output: Option<ObservedOutput>,
    /// The graph with the name that the request's graph has or will have.
    pub graph: Option<ObservedGraph>,
    /// Whether the cluster serves graphs. If not, the state of the graph is unknown.
    pub graphs_served: bool,
    pub graph_pods: Vec<ObservedPod>,
    /// The existing ConfigMaps with the names of those generated with the graph.
    pub additional: Vec<ObservedConfigMap>,
    pub references: ObservedReferences,
    /// The ServiceAccount of profiling Jobs.
    pub account: Option<ObservedAccount>,
    /// The RoleBinding of that account.
    pub binding: Option<ObservedBinding>,
    /// The RoleBinding with the further rights of a thorough search.
    pub thorough_binding: Option<ObservedBinding>,
    pub hardware: ObservedHardware,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Replaces an empty `spec.image`.
    pub default_image: Option<String>,
    /// The operator's own image, with the programs of the Job's sidecar and installer.
    pub operator_image: String,
    pub operator_image_pull_policy: Option<String>,
    /// The ClusterRole for the Jobs' account. None: the account is managed elsewhere.
    pub profiling_cluster_role: Option<String>,
    pub profiling_cluster_role_found: bool,
    /// The ClusterRole with the further rights of a thorough search. None: the other one has them.
    pub thorough_cluster_role: Option<String>,
    pub thorough_cluster_role_found: bool,
    /// Addresses for profiler and workers, by the name of the variable.
    pub infrastructure: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedObject {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: Option<i64>,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: DynamoGraphDeploymentRequestSpec,
    /// The stored status.
    pub status: Option<DynamoGraphDeploymentRequestStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedJob {
    pub uid: String,
    /// The UID of its controller.
    pub owner: Option<String>,
    /// Annotation with the hash of the spec that the Job was made from. None: an earlier operator created the Job.
    pub accepted_spec: Option<String>,
    /// The value of the retry annotation that the Job was made for.
    pub retry: Option<String>,
    pub state: JobState,
    pub ended: Option<Timestamp>,
    /// The label of the watch was removed.
    pub unlabelled: bool,
    /// Why it failed, as a code such as `BackoffLimitExceeded`.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    #[default]
    Running,
    Suspended,
    Complete,
    /// Message of the Job's condition.
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedOutput {
    pub uid: String,
    pub version: Option<String>,
    /// The UID of its controller.
    pub owner: Option<String>,
    pub data: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedGraph {
    pub name: String,
    pub uid: String,
    /// The version as served, such as `nvidia.com/v1beta1`.
    pub api_version: String,
    pub created: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub state: Option<String>,
    /// Message of the condition `Ready` if it is False.
    pub unready: Option<String>,
    /// Sum over the components.
    pub replicas: i32,
    pub available: i32,
}

/// A ConfigMap with the name of a generated one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedConfigMap {
    pub name: String,
    pub resource_version: Option<String>,
    pub created: Option<Timestamp>,
    /// UID of the request that it was written for, by our annotation.
    pub request: Option<String>,
    /// All fields except kind and metadata.
    pub content: Map<String, Value>,
}

/// Whether the objects that the request names exist. None: it names no such object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedReferences {
    pub model_cache: Option<bool>,
    pub output_claim: Option<bool>,
    pub config_map: Option<bool>,
    /// The Secret with the download token, which every Job names. None: the operator may not read it.
    pub token_secret: Option<bool>,
    /// No watch reports when the Secret appears.
    pub token_unwatched: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedAccount {
    /// Neither the labels nor the field managers are ours.
    pub foreign: bool,
    pub owners: ObservedOwners,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedBinding {
    pub uid: String,
    /// The ClusterRole of the immutable role reference.
    pub cluster_role: String,
    /// Created by others, and binds the account of profiling Jobs.
    pub foreign: bool,
    pub owners: ObservedOwners,
}

/// The owners of an object that all requests of a namespace share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedOwners {
    pub resource_version: Option<String>,
    /// Owner references as stored.
    pub references: Vec<Value>,
}
