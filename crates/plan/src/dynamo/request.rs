//! Interprets a request: its image, the fields that only v1alpha1 has, and whether the spec is still the one that
//! profiling began with.

use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_api::convert::convert;
pub use steersman_api::dynamo::convert::CONFIG_MAP_REF;
use steersman_api::dynamo::v1beta1::{DynamoGraphDeploymentRequestSpec, Phase};

use super::names::{ACCEPTED_SPEC, GENERATED_GRAPH};
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

/// Fields of v1alpha1 that v1beta1 keeps in annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlphaFields {
    /// Name and key of a ConfigMap.
    pub config_map: Option<(String, String)>,
    pub output_claim: Option<String>,
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
        ignored: ignored(&alpha["spec"], object.spec.image.as_deref()),
        unreadable,
    }
}

type ValueCheck = fn(&Value) -> bool;

/// Paths in the opaque v1alpha1 configuration that v1beta1 has fields for, with a check of the value's kind.
const TYPED: [(&str, ValueCheck); 9] = [
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
    untyped(&alpha["profilingConfig"]["config"], "", &mut found);
    let mut found: Vec<String> = found.iter().map(|path| format!("spec.profilingConfig.config.{path}")).collect();
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
