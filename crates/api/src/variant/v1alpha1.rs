//! `llmd.ai/v1alpha1`: one type for the manifests of three generations of the workload-variant-autoscaler, which share
//! the name of the version but not all fields.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// Workload to scale, its bounds, its cost and its accelerators.
#[expect(clippy::duplicated_attributes, reason = "printer columns of the same type repeat the attribute `type`")]
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "llmd.ai",
    version = "v1alpha1",
    kind = "VariantAutoscaling",
    namespaced,
    shortname = "va",
    status = "VariantAutoscalingStatus",
    derive = "PartialEq",
    doc = "One variant of a served model: a workload on one type of accelerator. Steersman decides how many replicas the \
           workload should have, and publishes the number in the status and as the metric `wva_desired_replicas`. An HPA or \
           KEDA scales the workload by that metric.",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.modelID"),
    printcolumn(name = "VariantID", type_ = "string", json_path = ".spec.variantID"),
    printcolumn(name = "Accelerator", type_ = "string", json_path = ".spec.accelerator"),
    printcolumn(name = "CurrentReplicas", type_ = "integer", json_path = ".status.currentAlloc.numReplicas"),
    printcolumn(name = "Optimized", type_ = "integer", json_path = ".status.desiredOptimizedAlloc.numReplicas"),
    printcolumn(
        name = "MetricsReady",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='MetricsAvailable')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.decision.wanted", priority = 1),
    printcolumn(name = "DecidedBy", type_ = "string", json_path = ".status.decision.decidedBy", priority = 1),
    printcolumn(name = "Target", type_ = "string", json_path = ".spec.scaleTargetRef.name", priority = 1),
    printcolumn(name = "Min", type_ = "integer", json_path = ".spec.minReplicas", priority = 1),
    printcolumn(name = "Max", type_ = "integer", json_path = ".spec.maxReplicas", priority = 1),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.desiredOptimizedAlloc.lastUpdate.reason",
        priority = 1
    )
)]
#[x_kube(crates(kube_core = "::kube_core"))]
#[x_kube(validation = Rule::new(BOUNDS).message("maxReplicas must be greater than or equal to minReplicas"))]
#[x_kube(validation = Rule::new("!has(self.modelProfile)").message(FIRST_GENERATION))]
#[x_kube(validation = Rule::new("has(self.scaleTargetRef) || has(self.modelProfile)")
    .message("scaleTargetRef is required: set kind and name of the workload to scale")
    .reason(Reason::FieldValueRequired)
    .field_path(".scaleTargetRef"))]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingSpec {
    /// Workload whose number of replicas is decided, in the namespace of this object. Required. If several objects
    /// refer to the same workload, only the oldest one decides.
    pub scale_target_ref: Option<ScaleTargetRef>,

    /// Name of the model as the server reports it in the label `model_name` of its metrics. Objects of one namespace
    /// with the same `modelID` are variants of one model and are decided together.
    #[serde(rename = "modelID")]
    #[schemars(length(min = 1, max = MAX_MODEL_ID_LENGTH))]
    pub model_id: String,

    /// Identifier of the variant for people and dashboards: model, accelerator and count joined by hyphens, for example
    /// `meta/llama-3.1-8b-H100-SXM-4`. It has no influence on decisions.
    #[serde(rename = "variantID")]
    #[schemars(length(min = 1), regex(pattern = r"^.+-[A-Za-z0-9_-]+-[1-9][0-9]*$"))]
    pub variant_id: Option<String>,

    /// Type of the accelerators of a replica, as the short name of the nodes' product: `A100` for
    /// `NVIDIA-A100-PCIE-80GB`. The GPU limit (`enableLimiter`) counts GPUs of this type. The name is also the label
    /// `accelerator_type` of the metrics. If absent, the label `inference.optimization/acceleratorName` of this object
    /// is used, then `status.desiredOptimizedAlloc.accelerator`.
    #[schemars(length(min = 1))]
    pub accelerator: Option<String>,

    /// Number of accelerators that one replica uses, for the GPU limit and the measured capacity. It counts only if the
    /// pod template of the workload requests no GPUs, or if the workload is neither a Deployment, a StatefulSet nor a
    /// LeaderWorkerSet. Otherwise the requested GPUs are counted. GPUs that the pods do not request limit this object,
    /// but are not kept from others. Default: 1.
    #[serde(default)]
    #[schemars(schema_with = "at_least_one")]
    pub accelerator_count: Option<i64>,

    /// Service class with the latency targets and the priority of the model. If it has no entry for the model, all classes
    /// are searched: first for the model, then for `default/default`. It has an effect on replicas only together with
    /// `variantProfile`; the priority applies to scarce GPUs in any case.
    #[serde(rename = "sloClassRef")]
    pub slo_class_ref: Option<SloClassRef>,

    /// Measured performance of one replica. If all variants of a model have it, and a service class has latency targets for
    /// the model, the replicas are decided by a queueing model: each replica gets as many requests per second as it serves
    /// within the targets. Otherwise they are decided from the saturation of the running replicas.
    pub variant_profile: Option<VariantProfile>,

    /// Cost of one replica, as a decimal number in any currency that all variants of the model share. If it is `10`, the
    /// default, and ConfigMap `accelerator-unit-costs` has a price for the accelerator, that price is used for each
    /// accelerator of a replica; write `10.0` for a cost of ten. Of the variants
    /// of a model, the cheapest grows first and the most expensive shrinks first. The default engine starts a variant
    /// without replicas only if no running one can grow, and does not remove the last replica of a variant. The token
    /// engine compares the cost per token of capacity when it adds replicas. Default: 10.
    #[serde(default = "default_cost")]
    #[schemars(regex(pattern = r"^\d+(\.\d+)?$"))]
    pub variant_cost: String,

    /// Smallest number of replicas. A value above 0 prevents scale to zero of this variant. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_replicas: i32,

    /// Largest number of replicas. If absent, there is no upper bound except the GPU limit, if that is enabled.
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,

    /// No longer accepted. It listed several accelerators in one object. Create one VariantAutoscaling per accelerator
    /// instead, and set `scaleTargetRef`, `accelerator`, `acceleratorCount` and `variantCost` in each.
    #[serde(default)]
    #[schemars(schema_with = "first_generation")]
    pub model_profile: Option<Value>,
}

/// Most characters of `spec.modelID`, which is a label of metrics and part of every query.
pub const MAX_MODEL_ID_LENGTH: usize = 512;

const BOUNDS: &str = "!has(self.maxReplicas) || !has(self.minReplicas) || self.maxReplicas >= self.minReplicas";

/// The field stays in the schema for this message: without it, users would read "unknown field".
const FIRST_GENERATION: &str = "modelProfile is no longer accepted: create one VariantAutoscaling per accelerator, and set \
     scaleTargetRef, accelerator, acceleratorCount and variantCost in each";

/// Default of `spec.variantCost`. The API server stores it, so it cannot be told from the same value of a user.
pub const DEFAULT_VARIANT_COST: &str = "10";

fn default_cost() -> String {
    DEFAULT_VARIANT_COST.to_owned()
}

/// A workload with a scale subresource.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Group and version, for example `apps/v1`. It may be left out for Deployments, StatefulSets and LeaderWorkerSets.
    #[schemars(length(min = 1))]
    pub api_version: Option<String>,
    /// Kind of the workload, for example `Deployment`.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A key of a ConfigMap with service classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloClassRef {
    /// Name of the ConfigMap. Classes are read from `service-classes-config` in Steersman's namespace.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key in the ConfigMap.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// Measured performance of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantProfile {
    /// Number of requests that one replica processes at the same time, from 1 to 16384.
    #[schemars(schema_with = "at_least_one")]
    pub max_batch_size: i64,
    /// Parameters of the latency of a replica.
    pub perf_parms: PerfParms,
}

/// Parameters of two linear functions, as decimal numbers in strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerfParms {
    /// Time per output token in milliseconds: `alpha` plus `beta` for each request in the batch. Both are required.
    #[schemars(extend("minProperties" = 1))]
    pub decode_parms: BTreeMap<String, String>,
    /// Time to the first token without waiting, in milliseconds: `gamma` plus `delta` for each input token of each
    /// request in the batch. Both are required.
    #[schemars(extend("minProperties" = 1))]
    pub prefill_parms: BTreeMap<String, String>,
}

/// Observed replicas, the decision and its reasons.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingStatus {
    /// Replicas that the workload has now. If the workload is missing or cannot be read, the last known number.
    pub current_alloc: Option<CurrentAlloc>,
    /// Replicas that the workload should have. Absent until the first decision for this workload, and while another
    /// object decides for it.
    pub desired_optimized_alloc: Option<DesiredOptimizedAlloc>,
    /// Explanation of the decision.
    pub decision: Option<DecisionStatus>,
    /// Whether the decision is published.
    pub actuation: Option<Actuation>,
    /// Settings for this object that are invalid or have no effect, at most 20. Condition `ConfigurationValid`
    /// describes the first five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 20))]
    pub config_faults: Vec<ConfigFault>,
    /// `TargetResolved`: whether the workload exists. `MetricsAvailable`: whether its metrics can be used.
    /// `OptimizationReady`: whether the object can be decided on. `SpecAccepted`: which fields of the spec are not used
    /// or invalid. `ConfigurationValid`, `DeploymentTargetConflict` and `Ready` exist only while a setting is invalid
    /// or has no effect, or while several objects have the same workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions_by_type")]
    pub conditions: Vec<Condition>,
}

/// The replicas of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentAlloc {
    /// `status.replicas` of the workload; `spec.replicas` while its status is not written yet.
    #[schemars(range(min = 0))]
    pub num_replicas: i32,
}

/// The last decision.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DesiredOptimizedAlloc {
    /// Time of the last write of this status with a number of replicas. A decision that changes nothing is not written,
    /// so the time does not show whether the operator is alive.
    #[schemars(schema_with = "schema::time")]
    pub last_run_time: Option<Time>,
    /// Type of the accelerators of a replica, as in `spec.accelerator`. Absent if it is unknown.
    pub accelerator: Option<String>,
    /// Number of replicas that the workload should have.
    #[schemars(range(min = 0))]
    pub num_replicas: Option<i32>,
    /// Last change of the number.
    pub last_update: Option<LastUpdate>,
}

/// One change of the number of replicas.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastUpdate {
    /// Time of the change.
    #[schemars(schema_with = "schema::time")]
    pub update_time: Option<Time>,
    /// Replicas after the change minus replicas before it, limited to -10000 and 10000.
    #[schemars(range(min = -10000, max = 10000))]
    pub num_replicas_changed: Option<i32>,
    /// Reason of this number, as text. Later reasons to keep the number are in the conditions.
    pub reason: Option<String>,
    /// `reason` without its end `(clamped from ... to ... for bounds)`, which it has if bounds changed a number that
    /// was kept. Absent if `reason` does not end like this.
    pub unclamped_reason: Option<String>,
}

/// Explanation of a decision, stage by stage. It is written again only if the number, the stage, a factor, the workload
/// or a condition changes, or if `wanted` doubles, halves, reaches `granted` or departs from it. The figures in its
/// texts are those of `time`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionStatus {
    /// Time at which this explanation was written.
    #[schemars(schema_with = "schema::time")]
    pub time: Option<Time>,
    /// Replicas that the load requires without bounds and limits. If the load is unknown, the number that is kept.
    #[schemars(range(min = 0))]
    pub wanted: Option<i32>,
    /// Replicas that were decided, as in `desiredOptimizedAlloc.numReplicas`.
    #[schemars(range(min = 0))]
    pub granted: Option<i32>,
    /// Stage that determined the number: `signal` (the load asks for no change of this variant), `solver` (the load
    /// asks for another number), `limits` (a bound, the GPU limit, scale to zero or another limit applies) or `hold`
    /// (the number stays because something is unknown, invalid or not finished yet, because another object decides or
    /// the namespace is excluded, or because the variant has no replicas).
    pub decided_by: Option<String>,
    /// Workload that the number was decided for. If `spec.scaleTargetRef` refers to another workload, the number is not
    /// used.
    pub scale_target_ref: Option<DecidedTarget>,
    /// Reasons of the number as codes, at most 16, limits first. `signal`, `limits` and `hold` have the same reasons as
    /// text, whose wording may change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 16))]
    pub factors: Vec<DecisionFactor>,
    /// Load that the metrics show, or why there are none.
    pub signal: Option<String>,
    /// Capacity that is missing or spare.
    pub need: Option<String>,
    /// Result of the solver for this variant.
    pub solver: Option<String>,
    /// Bounds and limits that apply to the number, at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 8))]
    pub limits: Vec<String>,
    /// Reason to keep the number: missing data, an invalid spec, an unfinished decision or another object that decides.
    /// Also the reason that blocks a scale-down or scale to zero.
    pub hold: Option<String>,
    /// Latency of this variant at the decided number. Present if the number is decided by `spec.variantProfile` and a
    /// service class.
    pub service_level: Option<ServiceLevelStatus>,
}

/// Latency targets of a variant, with the predicted and the measured latency. The figures are those of `decision.time`;
/// the gauges `wva_predicted_ttft_seconds` and `wva_measured_ttft_seconds`, and those for ITL, are always current.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceLevelStatus {
    /// Key of the service class in ConfigMap `service-classes-config`.
    pub class: Option<String>,
    /// Targets of the service class.
    pub target: Option<LatencyStatus>,
    /// Latency that the queueing model predicts for this variant's share of the load. Absent without replicas, and if
    /// more requests arrive than the replicas can complete.
    pub predicted: Option<LatencyStatus>,
    /// Average latency that the pods of this variant report. Absent if no request completed recently.
    pub measured: Option<LatencyStatus>,
    /// Requests per second that arrive at all variants of the model.
    pub requests_per_second: Option<f64>,
    /// Requests per second above which the model gets more replicas. Absent if none can be added.
    pub grows_above: Option<f64>,
    /// Requests per second below which the model gets fewer or cheaper replicas, if the load stays there for the
    /// stabilization window. Absent if none can be removed.
    pub shrinks_below: Option<f64>,
}

/// Latency in milliseconds, with three significant digits.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LatencyStatus {
    /// Time to the first token.
    pub ttft_milliseconds: Option<f64>,
    /// Time between two tokens of a request.
    pub itl_milliseconds: Option<f64>,
}

/// Workload of a decision: the value of `spec.scaleTargetRef` at that time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecidedTarget {
    /// Group and version, if `spec.scaleTargetRef` had them.
    pub api_version: Option<String>,
    /// Kind of the workload.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

/// One reason of a decision. Decisions with the same factors have the same explanation, whatever the load is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionFactor {
    /// Stage of the decision: `signal`, `limits` or `hold`.
    pub stage: String,
    /// Code in CamelCase, for example `MaxReplicas`, `AcceleratorsShort` or `MetricsStale`. A code never changes its
    /// meaning.
    pub code: String,
    /// Name of the VariantAutoscaling that the factor is about, which may be another one of the same model or workload.
    pub variant: Option<String>,
    /// Name of the pod that the factor is about.
    pub pod: Option<String>,
    /// Model that the factor is about.
    pub model: Option<String>,
    /// Type of accelerator that the factor is about.
    pub accelerator: Option<String>,
    /// Key of the ConfigMap entry that the factor is about.
    pub key: Option<String>,
    /// For `MaxReplicas` and `MinReplicas` the bound, for `WorkloadUnmoved` the replicas that the workload keeps.
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
}

/// One setting that is invalid or has no effect.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFault {
    /// Code in CamelCase, for example `ConfigValueInvalid`.
    pub code: String,
    /// ConfigMap with the setting. Absent if the setting is an environment variable or not in a single ConfigMap.
    pub config_map: Option<ConfigMapReference>,
    /// Keys of the ConfigMap, or the name of the environment variable. There are several if their values contradict
    /// each other. Absent if the fault is not about single keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// A ConfigMap in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapReference {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
}

/// State of the publication of the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Actuation {
    /// True if the number is published as the metric `wva_desired_replicas`. False if another object decides on the
    /// workload, if there is no number, or if the namespace is excluded. Whether the workload was scaled is in
    /// `currentAlloc`.
    pub applied: bool,
}

fn at_least_one(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1 })
}

/// The full schema of the field. Under a field of unknown content, rules are evaluated at every update, so that an
/// object of the first generation could neither be labelled nor lose its finalizers.
fn first_generation(_: &mut SchemaGenerator) -> Schema {
    let texts = || serde_json::json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json_schema!({
        "type": "object",
        "properties": {
            "accelerators": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "acc": { "type": "string" },
                        "accCount": { "type": "integer" },
                        "maxBatchSize": { "type": "integer" },
                        "perfParms": {
                            "type": "object",
                            "properties": { "decodeParms": texts(), "prefillParms": texts() },
                        },
                    },
                },
            },
        },
    })
}
