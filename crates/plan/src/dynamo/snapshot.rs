//! Everything that counts for one request, as plain data.
//! Comes in: the request, what the cluster has of it and the operator's settings; goes out: nothing, this is what the plan
//! reads. What could not be read ends a pass before it gets here, so absent means absent.

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
    /// The Job with the request's name.
    pub job: Option<ObservedJob>,
    /// The pods of that Job.
    pub job_pods: Vec<ObservedPod>,
    /// The ConfigMap that the profiler's sidecar writes.
    pub output: Option<ObservedOutput>,
    /// The graph that goes by the name this request's graph has or would have.
    pub graph: Option<ObservedGraph>,
    /// Whether the cluster serves graphs at all, as far as anybody asked. Where it does not, nothing is known of any.
    pub graphs_served: bool,
    /// The pods of that graph.
    pub graph_pods: Vec<ObservedPod>,
    /// The ConfigMaps that were generated with the graph, as far as there are objects of their names.
    pub additional: Vec<ObservedConfigMap>,
    /// Objects that the request names, and whether they are there.
    pub named: ObservedReferences,
    /// Whether the account of profiling Jobs is there.
    pub account: bool,
    /// The binding of that account.
    pub binding: Option<ObservedBinding>,
    pub hardware: ObservedHardware,
}

/// What the operator was told when it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Stands where `spec.image` is empty.
    pub default_image: Option<String>,
    /// The operator's own image: the Job's sidecar and its installer are programs in it.
    pub operator_image: String,
    pub operator_image_pull_policy: Option<String>,
    /// The ClusterRole for the Jobs' account. None: the account is managed elsewhere.
    pub profiling_cluster_role: Option<String>,
    /// Whether that ClusterRole is there.
    pub profiling_cluster_role_found: bool,
    /// Addresses that profiler and workers need, by the name of the variable.
    pub infrastructure: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObservedObject {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: Option<i64>,
    pub created: Option<Timestamp>,
    /// It has a deletion timestamp.
    pub deleting: bool,
    pub finalizers: Vec<String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: DynamoGraphDeploymentRequestSpec,
    /// As stored.
    pub status: Option<DynamoGraphDeploymentRequestStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedJob {
    /// The UID of its controller.
    pub owner: Option<String>,
    /// Which spec it was made from, by its annotation. None: an earlier operator made it.
    pub mark: Option<String>,
    pub state: JobState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Running,
    Suspended,
    Complete,
    /// With the message of the condition.
    Failed(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedOutput {
    pub uid: String,
    /// Its resourceVersion.
    pub version: Option<String>,
    /// The UID of its controller.
    pub owner: Option<String>,
    pub data: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedGraph {
    pub name: String,
    pub uid: String,
    /// As served, such as `nvidia.com/v1beta1`.
    pub api_version: String,
    pub created: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// `status.state`.
    pub state: Option<String>,
    /// The message of its condition `Ready`, where that is False.
    pub unready: Option<String>,
    /// Sums over its components.
    pub replicas: i32,
    pub available: i32,
}

/// A ConfigMap with the name of a generated one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedConfigMap {
    pub name: String,
    pub resource_version: Option<String>,
    pub created: Option<Timestamp>,
    /// The UID of the request that it was written for, by our mark.
    pub request: Option<String>,
    /// Its fields but for kind and metadata.
    pub content: Map<String, Value>,
}

/// Whether what the request names is there. None: it names nothing of the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedReferences {
    pub model_cache: Option<bool>,
    pub output_claim: Option<bool>,
    pub config_map: Option<bool>,
    /// The Secret with the token for downloads, which every Job names.
    pub token_secret: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ObservedBinding {
    pub uid: String,
    /// The ClusterRole that it refers to, which can never change.
    pub cluster_role: String,
}
