//! Interprets a request: its image, the fields that only v1alpha1 has, and whether the spec is still the one that
//! profiling began with.

use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_api::convert::convert;
pub use steersman_api::dynamo::convert::CONFIG_MAP_REF;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestSpec, Hardware, Phase, SearchStrategy};

use super::hardware::sku;
use super::names::{ACCEPTED_SPEC, GENERATED_GRAPH, RETRY};
use super::snapshot::ObservedObject;
use crate::content_hash;

/// The image of a request. An empty string counts as unset.
pub fn image_or<'a>(spec: &'a DynamoGraphDeploymentRequestSpec, default: Option<&'a str>) -> Option<&'a str> {
    non_empty(spec.image.as_deref()).or_else(|| non_empty(default))
}

pub fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

pub fn auto_apply(object: &ObservedObject) -> bool {
    object.spec.auto_apply.unwrap_or(true)
}

pub fn uses_mocker(spec: &DynamoGraphDeploymentRequestSpec) -> bool {
    spec.features.as_ref().and_then(|features| features.mocker.as_ref()?.enabled).unwrap_or_default()
}

pub fn is_thorough(spec: &DynamoGraphDeploymentRequestSpec) -> bool {
    spec.search_strategy == Some(SearchStrategy::Thorough)
}

pub fn graph_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<&Map<String, Value>> {
    spec.overrides.as_ref()?.dgd.as_ref()
}

pub fn model_cache(spec: &DynamoGraphDeploymentRequestSpec) -> Option<&str> {
    non_empty(spec.model_cache.as_ref()?.pvc_name.as_deref())
}

pub fn phase(object: &ObservedObject) -> Option<Phase> {
    object.status.as_ref().and_then(|status| status.phase)
}

pub fn has_job(object: &ObservedObject) -> bool {
    object.status.as_ref().is_some_and(|status| status.profiling_job_name.is_some())
}

/// Number of characters of the retry annotation that count: the value is copied to the status and to the Job.
const MAX_RETRY_CHARS: usize = 128;

/// The value of the retry annotation.
pub fn retry(object: &ObservedObject) -> Option<String> {
    let value = non_empty(object.annotations.get(RETRY).map(String::as_str))?;
    Some(value.chars().take(MAX_RETRY_CHARS).collect())
}

/// The value of the retry annotation that the current attempt was started with.
pub fn last_retry(object: &ObservedObject) -> Option<&str> {
    object.status.as_ref().and_then(|status| status.last_retry.as_deref())
}

/// Whether the user wants a Failed request to start again.
pub fn wants_retry(object: &ObservedObject) -> bool {
    let wanted = retry(object);
    phase(object) == Some(Phase::Failed) && wanted.is_some() && wanted.as_deref() != last_retry(object)
}

/// The command that sets the retry annotation to a new value.
pub fn retry_command(object: &ObservedObject) -> String {
    format!("kubectl annotate dgdr -n {} {} --overwrite {RETRY}=$(date +%s)", object.namespace, object.name)
}

/// Fields of v1alpha1 that v1beta1 keeps in annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlphaFields {
    /// Name and key of a ConfigMap.
    pub config_map: Option<(String, String)>,
    pub output_claim: Option<String>,
    /// The GPUs in the opaque configuration.
    pub hardware: Hardware,
    /// Fields of v1alpha1 without effect.
    pub ignored: Vec<String>,
    /// Why the annotations cannot be read, as a phrase.
    pub unreadable: Option<String>,
}

/// Prefix of all annotations with fields of v1alpha1.
const ALPHA_ANNOTATION_PREFIX: &str = "nvidia.com/dgdr-";

pub const CONFIG_KEY: &str = "disagg.yaml";

pub fn alpha_fields(object: &ObservedObject) -> AlphaFields {
    // Most requests were never of v1alpha1, and each reconcile calls this several times.
    if !object.annotations.keys().any(|key| key.starts_with(ALPHA_ANNOTATION_PREFIX)) {
        return AlphaFields::default();
    }
    let (group, kind) = (Family::Dgdr.group(), Family::Dgdr.kind());
    let whole = json!({
        "apiVersion": format!("{group}/v1beta1"),
        "kind": kind,
        "metadata": { "name": object.name, "namespace": object.namespace, "annotations": object.annotations },
        "spec": object.spec,
    });
    let alpha = match convert(whole, &format!("{group}/v1alpha1")) {
        Ok(alpha) => alpha.object,
        Err(error) => return AlphaFields { unreadable: Some(error.to_string()), ..AlphaFields::default() },
    };
    // The JSON is read without its type, because a native v1beta1 request may lack fields that v1alpha1 requires.
    let profiling = &alpha["spec"]["profilingConfig"];
    let text = |value: &Value| non_empty(value.as_str()).map(str::to_owned);
    let reference = &profiling["configMapRef"];
    let config_map =
        text(&reference["name"]).map(|name| (name, text(&reference["key"]).unwrap_or_else(|| CONFIG_KEY.to_owned())));
    // Users write the annotation by hand, and a plain name looks right.
    let unreadable = non_empty(object.annotations.get(CONFIG_MAP_REF).map(String::as_str))
        .filter(|_| config_map.is_none())
        .map(|found| {
            format!("{CONFIG_MAP_REF} is {found:?} and must be JSON with a name, as in {{\"name\":\"base\",\"key\":\"{CONFIG_KEY}\"}}")
        });
    AlphaFields {
        config_map,
        output_claim: text(&profiling["outputPVC"]),
        hardware: alpha_hardware(&profiling["config"]["hardware"]),
        ignored: ignored(&alpha["spec"], object.spec.image.as_deref()),
        unreadable,
    }
}

/// The GPUs to plan for: those of the spec, completed with those of v1alpha1's opaque configuration.
pub fn hardware(object: &ObservedObject) -> Option<Hardware> {
    let asked = alpha_fields(object).hardware;
    if asked == Hardware::default() {
        return object.spec.hardware.clone();
    }
    let own = object.spec.hardware.clone().unwrap_or_default();
    Some(Hardware {
        gpu_sku: own.gpu_sku.or(asked.gpu_sku),
        vram_mb: own.vram_mb.or(asked.vram_mb),
        num_gpus_per_node: own.num_gpus_per_node.or(asked.num_gpus_per_node),
        total_gpus: own.total_gpus.or(asked.total_gpus),
        ..own
    })
}

/// Reads the names that the profilers of v1alpha1 used.
fn alpha_hardware(config: &Value) -> Hardware {
    let field = |names: &[&str], fits: ValueCheck| names.iter().map(|name| &config[*name]).find(|value| fits(value));
    let count = |names: &[&str]| field(names, is_count).and_then(|value| i32::try_from(value.as_i64()?).ok());
    Hardware {
        gpu_sku: field(&GPU_MODEL, is_gpu).and_then(|value| sku::infer(value.as_str()?)),
        vram_mb: field(&GPU_MEMORY, is_count).and_then(|value| value.as_number().cloned()),
        num_gpus_per_node: count(&GPUS_PER_NODE),
        total_gpus: count(&["totalGpus"]),
        ..Hardware::default()
    }
}

const GPU_MODEL: [&str; 3] = ["gpuSku", "gpuModel", "gpu_model"];
const GPU_MEMORY: [&str; 3] = ["vramMb", "gpuVramMib", "gpu_vram_mib"];
const GPUS_PER_NODE: [&str; 2] = ["numGpusPerNode", "num_gpus_per_node"];

fn is_gpu(value: &Value) -> bool {
    value.as_str().is_some_and(|model| sku::infer(model).is_some())
}

/// A number of GPUs or of MiB.
fn is_count(value: &Value) -> bool {
    value.as_i64().is_some_and(|count| count > 0 && count <= i64::from(i32::MAX))
}

type ValueCheck = fn(&Value) -> bool;

/// Paths in the opaque v1alpha1 configuration that have an effect, with a check of the value's kind.
const TYPED: [(&str, ValueCheck); 18] = [
    ("hardware.gpuSku", is_gpu),
    ("hardware.gpuModel", is_gpu),
    ("hardware.gpu_model", is_gpu),
    ("hardware.vramMb", is_count),
    ("hardware.gpuVramMib", is_count),
    ("hardware.gpu_vram_mib", is_count),
    ("hardware.numGpusPerNode", is_count),
    ("hardware.num_gpus_per_node", is_count),
    ("hardware.totalGpus", is_count),
    ("sla.ttft", Value::is_number),
    ("sla.itl", Value::is_number),
    ("sla.optimizationType", |value| value == "latency" || value == "throughput"),
    ("sla.isl", Value::is_number),
    ("sla.osl", Value::is_number),
    ("deployment.modelCache.pvcName", Value::is_string),
    ("deployment.modelCache.modelPathInPvc", Value::is_string),
    ("deployment.modelCache.pvcMountPath", Value::is_string),
    ("planner", Value::is_object),
];

fn ignored(alpha: &Value, image: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let config = &alpha["profilingConfig"]["config"];
    untyped(config, "", &mut found);
    let mut found: Vec<String> = found.iter().map(|path| format!("spec.profilingConfig.config.{path}")).collect();
    if !config.is_object() && !config.is_null() {
        found.push("spec.profilingConfig.config".to_owned());
    }
    // True is the default of the schema, and has no effect.
    if alpha["enableGpuDiscovery"] == false {
        found.push("spec.enableGpuDiscovery".to_owned());
    }
    let overrides = alpha["deploymentOverrides"].as_object().into_iter().flatten();
    // The workers' image defaults to that of the request.
    let counts = |name: &str, value: &Value| name == "workersImage" && value.as_str() == image;
    let overrides = overrides.filter(|(name, value)| !value.is_null() && !counts(name, value));
    found.extend(overrides.map(|(name, _)| format!("spec.deploymentOverrides.{name}")));
    found
}

/// Collects the first path on each way down that leads to no typed field.
fn untyped(node: &Value, path: &str, found: &mut Vec<String>) {
    for (name, value) in node.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let inner = format!("{path}.");
        if value.is_object() && TYPED.iter().any(|(typed, _)| typed.starts_with(&inner)) {
            untyped(value, &path, found);
        } else if !TYPED.iter().any(|(typed, fits)| *typed == path && fits(value)) {
            found.push(path);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Accepted,
    /// The annotation `steersman.dev/accepted-spec` is absent, or from before a permitted change. Holds its new value.
    NewHash(String),
    /// A fixed field was changed. Changing it back is accepted, because the hash is then the stored one again.
    Changed,
}

pub fn acceptance(object: &ObservedObject) -> Acceptance {
    let now = spec_hash(&object.spec);
    let Some(known) = object.annotations.get(ACCEPTED_SPEC) else { return Acceptance::NewHash(now) };
    if *known == now {
        return Acceptance::Accepted;
    }
    let without_version = |hash: &str| hash.split_once(' ').map(|(fields, _)| fields.to_owned());
    // Without automatic deployment, the version may be set until the graph is created, and deployment may be enabled in
    // Ready; admission enforces this order.
    let open = match phase(object) {
        Some(Phase::Ready) => true,
        Some(Phase::Profiling) => !auto_apply(object),
        _ => false,
    };
    if open && without_version(known) == without_version(&now) { Acceptance::NewHash(now) } else { Acceptance::Changed }
}

/// Value of the annotation `steersman.dev/accepted-spec`: a hash of the fields that determine the profiling, a space, and
/// `runtimeVersionOverride`, which may be changed for longer.
pub fn spec_hash(spec: &DynamoGraphDeploymentRequestSpec) -> String {
    let mut rest = json!(spec);
    if let Value::Object(fields) = &mut rest {
        // A section without fields means nothing, and API versions differ in whether they write it.
        let empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
        fields.retain(|name, value| name != "autoApply" && name != "runtimeVersionOverride" && !empty(value));
    }
    let hash = content_hash::hex(&content_hash::sorted(&rest).to_string());
    format!("{} {}", &hash[..16], spec.runtime_version_override.as_deref().unwrap_or_default())
}

/// The generated graph that is to be created, as YAML.
pub fn generated_graph(object: &ObservedObject) -> Option<&str> {
    non_empty(object.annotations.get(GENERATED_GRAPH).map(String::as_str))
}
