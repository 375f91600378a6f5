//! `llmd.ai/v1alpha1`, one type for the manifests of three generations of the workload-variant-autoscaler, which share the
//! name of the version but not all fields.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with_macros::skip_serializing_none;

use crate::meta::schema;

/// What to scale, within which bounds, and what is known about its speed and cost.
#[expect(clippy::duplicated_attributes, reason = "two columns may have the same type")]
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
    doc = "One variant of a served model: a workload, its accelerators, and the number of replicas that it should have.",
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
    .message("scaleTargetRef is required: give kind and name of the workload to scale")
    .reason(Reason::FieldValueRequired)
    .field_path(".scaleTargetRef"))]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingSpec {
    /// The workload whose replicas are decided. It lives in the namespace of this object and may have any name. Required.
    pub scale_target_ref: Option<ScaleTargetRef>,

    /// Name of the model as the serving engine reports it in its metrics (label `model_name`). All variants with the same
    /// name in one namespace share that model's load.
    #[serde(rename = "modelID")]
    #[schemars(length(min = 1))]
    pub model_id: String,

    /// Identifier of the variant for people and dashboards: model, accelerator and count joined by hyphens, for example
    /// `meta/llama-3.1-8b-H100-SXM-4`. Nothing is decided by it.
    #[serde(rename = "variantID")]
    #[schemars(length(min = 1), regex(pattern = r"^.+-[A-Za-z0-9_-]+-[1-9][0-9]*$"))]
    pub variant_id: Option<String>,

    /// Type of accelerator that a replica runs on. The GPU limiter compares it with the short product name of the nodes, for
    /// example `H100`.
    #[schemars(length(min = 1))]
    pub accelerator: Option<String>,

    /// How many accelerators one replica occupies.
    #[serde(default)]
    #[schemars(schema_with = "at_least_one")]
    pub accelerator_count: Option<i64>,

    /// The service class of the model, in a ConfigMap. Accepted and not used yet.
    #[serde(rename = "sloClassRef")]
    pub slo_class_ref: Option<SloClassRef>,

    /// How fast the variant is. Accepted and not used yet: replicas are decided by the saturation of the running ones.
    pub variant_profile: Option<VariantProfile>,

    /// Price of one replica, as a decimal number in any currency that all variants share. The cheaper of two variants that
    /// both suffice is preferred.
    #[serde(default = "default_cost")]
    #[schemars(regex(pattern = r"^\d+(\.\d+)?$"))]
    pub variant_cost: String,

    /// Never fewer replicas than this. Above 0 it keeps the model from being scaled to zero.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_replicas: i32,

    /// Never more replicas than this; without it there is no upper bound, unless the limiter counts accelerators.
    #[schemars(range(min = 1))]
    pub max_replicas: Option<i32>,

    /// Not accepted any more. It stood for several variants in one object; give each accelerator an object of its own, with
    /// `scaleTargetRef`, `variantID`, `accelerator`, `acceleratorCount` and `variantProfile`.
    #[serde(default)]
    #[schemars(schema_with = "first_generation")]
    pub model_profile: Option<Value>,
}

const BOUNDS: &str = "!has(self.maxReplicas) || !has(self.minReplicas) || self.maxReplicas >= self.minReplicas";

/// Without the field in the schema, its owner would read "unknown field" instead of this.
const FIRST_GENERATION: &str = "modelProfile is no longer accepted: write one VariantAutoscaling per accelerator, with \
     scaleTargetRef, variantID, accelerator, acceleratorCount and variantProfile in place of modelProfile";

fn default_cost() -> String {
    "10".to_owned()
}

/// A workload with a scale subresource.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTargetRef {
    /// Group and version, for example `apps/v1`.
    #[schemars(length(min = 1))]
    pub api_version: Option<String>,
    /// For example `Deployment`.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloClassRef {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// Measured performance of one replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantProfile {
    /// How many requests one replica works on at the same time.
    #[schemars(schema_with = "at_least_one")]
    pub max_batch_size: i64,
    /// The two straight lines that describe the latency of a replica.
    pub perf_parms: PerfParms,
}

/// Numbers are decimal texts, so that no tool on the way rounds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerfParms {
    /// Time per output token in milliseconds: `alpha` plus `beta` for each request in the batch.
    #[schemars(extend("minProperties" = 1))]
    pub decode_parms: BTreeMap<String, String>,
    /// Time to the first token in milliseconds: `gamma` plus `delta` for each input token of each request in the batch.
    #[schemars(extend("minProperties" = 1))]
    pub prefill_parms: BTreeMap<String, String>,
}

/// What was seen, decided and done.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariantAutoscalingStatus {
    /// What runs now.
    pub current_alloc: Option<CurrentAlloc>,
    /// What should run.
    pub desired_optimized_alloc: Option<DesiredOptimizedAlloc>,
    /// How the decision came about.
    pub decision: Option<DecisionStory>,
    /// Whether the decision has reached those who act on it.
    pub actuation: Option<Actuation>,
    /// Settings that hold for this object and cannot be used as they are; condition `ConfigurationValid` describes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 20))]
    pub config_faults: Vec<ConfigFault>,
    /// What stands in the way, and what does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions_by_type")]
    pub conditions: Vec<Condition>,
}

/// The replicas of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentAlloc {
    /// Replicas that the workload has.
    #[schemars(range(min = 0))]
    pub num_replicas: i32,
}

/// The last decision.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DesiredOptimizedAlloc {
    /// When the decision was last confirmed or changed.
    #[schemars(schema_with = "schema::time")]
    pub last_run_time: Option<Time>,
    /// Type of accelerator that the replicas run on.
    pub accelerator: Option<String>,
    /// Replicas that the workload should have; absent until the first decision.
    #[schemars(range(min = 0))]
    pub num_replicas: Option<i32>,
    /// The last change of the decision.
    pub last_update: Option<LastUpdate>,
}

/// One change of the decision.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LastUpdate {
    /// When the number or the reason changed.
    #[schemars(schema_with = "schema::time")]
    pub update_time: Option<Time>,
    /// Replicas after the change less those before it; 0 if only the reason changed.
    #[schemars(range(min = -10000, max = 10000))]
    pub num_replicas_changed: Option<i32>,
    /// Why this number, in words for people.
    pub reason: Option<String>,
    /// `reason` without what `minReplicas` or `maxReplicas` changed afterwards; absent if they changed nothing.
    pub unclamped_reason: Option<String>,
}

/// How a number came about, stage by stage. It is written when the number changes, or what stands in its way; figures are
/// those of that moment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DecisionStory {
    /// When this was written.
    #[schemars(schema_with = "schema::time")]
    pub time: Option<Time>,
    /// Replicas that the load asks for where nothing limits them.
    #[schemars(range(min = 0))]
    pub wanted: Option<i32>,
    /// Replicas that were decided.
    #[schemars(range(min = 0))]
    pub granted: Option<i32>,
    /// The stage that fixed the number: `signal`, `solver`, `limits` or `hold`.
    pub decided_by: Option<String>,
    /// The workload that the number was decided for. A number that was decided for another workload is not applied.
    pub scale_target_ref: Option<DecidedTarget>,
    /// What led to the number, as codes for programs. `signal`, `limits` and `hold` say the same to people, and their
    /// wording may change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 16))]
    pub factors: Vec<DecisionFactor>,
    /// What the metrics say.
    pub signal: Option<String>,
    /// What that asks for.
    pub need: Option<String>,
    /// What it means for this variant.
    pub solver: Option<String>,
    /// Bounds and rules that changed the number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 8))]
    pub limits: Vec<String>,
    /// What is not known or not yet done, and keeps the number.
    pub hold: Option<String>,
}

/// The workload of a decision, as `spec.scaleTargetRef` named it then.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecidedTarget {
    /// Group and version, if they were given.
    pub api_version: Option<String>,
    /// Kind of the workload.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

/// One thing that led to a decision. Two decisions with the same factors have the same explanation, whatever the load is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionFactor {
    /// The stage that it belongs to: `signal`, `limits` or `hold`.
    pub stage: String,
    /// One word in CamelCase, for example `MaxReplicas`, `AcceleratorsShort` or `MetricsStale`.
    pub code: String,
    /// Name of the `VariantAutoscaling` that it is about, if that is one of the same model.
    pub variant: Option<String>,
    /// Name of the pod that it is about.
    pub pod: Option<String>,
    /// The model that it is about.
    pub model: Option<String>,
    /// Type of the accelerator that it is about.
    pub accelerator: Option<String>,
    /// Key of the ConfigMap entry that it is about.
    pub key: Option<String>,
    /// The bound for `MaxReplicas` and `MinReplicas`; for `WorkloadUnmoved` the replicas that the workload stays at.
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
}

/// One setting that cannot be used as it is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFault {
    /// One word in CamelCase, for example `ConfigValueInvalid`.
    pub code: String,
    /// The ConfigMap with the setting; absent if it comes from the environment or from no single ConfigMap.
    pub config_map: Option<ConfigMapReference>,
    /// Keys of the ConfigMap; several if their values contradict each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
}

/// A ConfigMap in any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The state of acting on the decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Actuation {
    /// True once the decision was published or carried out.
    pub applied: bool,
}

fn at_least_one(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "minimum": 1 })
}

/// The shape of the field. A rule over fields of unknown content would be evaluated at every update, so that an object of the
/// first generation could neither be labelled nor lose its finalizers.
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
