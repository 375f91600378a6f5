//! The fields of a graph in both versions, with the limits of its published CRD. Fields of pods have the API server's own
//! definitions.

use serde_json::Value;
use steersman_reconcile::quantity::billionths;

use super::types::FieldType::{
    self, Any, AnyObject, Flag, Integer, Kubernetes, ListOf, MapOf, Matching, Number, Object, OneOf, Pod, Quantity,
    Text,
};
use super::types::{Pattern, Structure};
use super::{JsonObject, kubernetes};

/// Maximum number of components of a graph.
const MAX_COMPONENTS: usize = 25;
/// Maximum number of volume claims of a v1alpha1 graph.
const MAX_CLAIMS: usize = 100;
const EXECUTOR: &str = "nvidia.com/vllm-distributed-executor-backend";

const INT32: i64 = i32::MAX as i64;
const PLAIN: Structure = Structure { fields: &[], required: &[], open: false, rule: None };

const NON_EMPTY: FieldType = Matching(&Pattern { fits: |text| !text.is_empty(), words: "a non-empty string" });
const DOMAIN: FieldType = Matching(&Pattern {
    fits: is_domain,
    words: "lower-case letters, digits and hyphens, with a letter or digit at both ends",
});
const CONTAINER_NAME: FieldType = Matching(&Pattern {
    fits: |text| text.len() <= 63 && is_domain(text),
    words: "at most 63 lower-case letters, digits and hyphens, with a letter or digit at both ends",
});
const COMPONENT_NAME: FieldType = Matching(&Pattern {
    fits: |text| text.len() <= 63 && is_bounded(text, |c| c.is_ascii_alphanumeric(), |c| c == '-'),
    words: "at most 63 letters, digits and hyphens, with a letter or digit at both ends",
});
const VERSION: FieldType = Matching(&Pattern { fits: is_version, words: "a version of three numbers, such as 1.5.0" });
const LABEL_KEY: FieldType = Matching(&Pattern { fits: is_label_key, words: "a valid label key" });
const TEXTS: FieldType = MapOf(&Text);
const LIST_OF_TEXTS: FieldType = ListOf(&Text);
const INTEGER_32: FieldType = Integer(i32::MIN as i64, INT32);
const INTEGER: FieldType = Integer(i64::MIN, i64::MAX);
const POSITIVE: FieldType = Integer(1, INT32);
const VARIABLES: FieldType = ListOf(&Kubernetes(kubernetes::VARIABLE));

/// Metadata of an override: other fields have no effect.
pub const METADATA: Structure = Structure { fields: &[("labels", TEXTS), ("annotations", TEXTS)], open: true, ..PLAIN };
/// Metadata inside of a spec.
pub const INNER_METADATA: Structure = Structure {
    fields: &[
        ("labels", TEXTS),
        ("annotations", TEXTS),
        ("finalizers", LIST_OF_TEXTS),
        ("name", Text),
        ("namespace", Text),
    ],
    ..PLAIN
};
const POD_METADATA: Structure = Structure { rule: Some(executor), ..INNER_METADATA };
const EXTRA_METADATA: Structure = Structure { fields: &[("labels", TEXTS), ("annotations", TEXTS)], ..PLAIN };
const POD_TEMPLATE: Structure =
    Structure { fields: &[("metadata", Object(POD_METADATA)), ("spec", Pod(&[]))], ..PLAIN };

const PROVIDER_OVERRIDE: Structure = Structure {
    fields: &[("apiVersion", NON_EMPTY), ("target", Text), ("value", AnyObject)],
    required: &["apiVersion", "value"],
    ..PLAIN
};
const MULTINODE_ROLE: Structure = Structure { fields: &[("providerOverride", Object(PROVIDER_OVERRIDE))], ..PLAIN };
/// The API server sets an absent number of nodes.
const MULTINODE: Structure = Structure {
    fields: &[("nodeCount", Integer(2, INT32)), ("leader", Object(MULTINODE_ROLE)), ("worker", Object(MULTINODE_ROLE))],
    ..PLAIN
};
const COMPONENT_TOPOLOGY: Structure =
    Structure { fields: &[("packDomain", DOMAIN)], required: &["packDomain"], ..PLAIN };
const BACKENDS: FieldType = OneOf(&["sglang", "vllm", "trtllm"]);

const KV_TRANSFER_POLICY: Structure = Structure {
    fields: &[
        ("clusterTopologyName", NON_EMPTY),
        ("domain", DOMAIN),
        ("enforcement", OneOf(&["required", "preferred"])),
        ("labelKey", LABEL_KEY),
        ("preferredWeight", Number(0.0, 1.0)),
    ],
    required: &["domain"],
    rule: Some(kv_transfer),
    ..PLAIN
};
const SPEC_EXPERIMENTS: Structure = Structure { fields: &[("kvTransferPolicy", Object(KV_TRANSFER_POLICY))], ..PLAIN };

const EPP_PLUGIN: Structure =
    Structure { fields: &[("name", Text), ("parameters", Any), ("type", Text)], required: &["type"], ..PLAIN };
const EPP_PLUGIN_USE: Structure =
    Structure { fields: &[("pluginRef", Text), ("weight", INTEGER)], required: &["pluginRef"], ..PLAIN };
const EPP_PROFILE: Structure = Structure {
    fields: &[("name", Text), ("plugins", ListOf(&Object(EPP_PLUGIN_USE)))],
    required: &["name", "plugins"],
    ..PLAIN
};
const EPP_SATURATION: Structure = Structure {
    fields: &[
        ("kvCacheUtilThreshold", Number(f64::MIN, f64::MAX)),
        ("metricsStalenessThreshold", Text),
        ("queueDepthThreshold", INTEGER),
    ],
    ..PLAIN
};
const EPP_CONFIG: Structure = Structure {
    fields: &[
        ("apiVersion", Text),
        ("featureGates", LIST_OF_TEXTS),
        ("kind", Text),
        ("plugins", ListOf(&Object(EPP_PLUGIN))),
        ("saturationDetector", Object(EPP_SATURATION)),
        ("schedulingProfiles", ListOf(&Object(EPP_PROFILE))),
    ],
    required: &["plugins", "schedulingProfiles"],
    open: true,
    ..PLAIN
};
const SERVICE_EPP: Structure = Structure {
    fields: &[("config", Object(EPP_CONFIG)), ("configMapRef", Kubernetes(kubernetes::CONFIG_MAP_KEY))],
    ..PLAIN
};
const COMPONENT_EPP: Structure = Structure { rule: Some(one_epp_source), ..SERVICE_EPP };

const fn identity(model: FieldType) -> [(&'static str, FieldType); 8] {
    [
        ("backendFramework", BACKENDS),
        ("dtype", Text),
        ("dynamoVersion", Text),
        ("extraParameters", TEXTS),
        ("maxModelLen", POSITIVE),
        ("model", model),
        ("pipelineParallelSize", POSITIVE),
        ("tensorParallelSize", POSITIVE),
    ]
}
const IDENTITY_REQUIRED: &[&str] = &["backendFramework", "model"];
const SERVICE_IDENTITY_FIELDS: [(&str, FieldType); 8] = identity(Text);
const SERVICE_IDENTITY: Structure =
    Structure { fields: &SERVICE_IDENTITY_FIELDS, required: IDENTITY_REQUIRED, ..PLAIN };
const COMPONENT_IDENTITY_FIELDS: [(&str, FieldType); 8] = identity(NON_EMPTY);
const COMPONENT_IDENTITY: Structure =
    Structure { fields: &COMPONENT_IDENTITY_FIELDS, required: IDENTITY_REQUIRED, ..PLAIN };
const CHECKPOINT_JOB: Structure =
    Structure { fields: &[("gmsClientContainers", ListOf(&CONTAINER_NAME)), ("podTemplate", AnyObject)], ..PLAIN };
const fn checkpoint(identity: FieldType) -> [(&'static str, FieldType); 8] {
    [
        ("checkpointRef", Text),
        ("deletionPolicy", OneOf(&["Delete", "Retain"])),
        ("enabled", Flag),
        ("identity", identity),
        ("job", Object(CHECKPOINT_JOB)),
        ("mode", OneOf(&["Auto", "Manual"])),
        ("startupPolicy", OneOf(&["Immediate", "WaitForCheckpoint"])),
        ("targetContainerName", CONTAINER_NAME),
    ]
}
const SERVICE_CHECKPOINT_FIELDS: [(&str, FieldType); 8] = checkpoint(Object(SERVICE_IDENTITY));
const SERVICE_CHECKPOINT: Structure =
    Structure { fields: &SERVICE_CHECKPOINT_FIELDS, rule: Some(one_checkpoint_source), ..PLAIN };
const COMPONENT_CHECKPOINT_FIELDS: [(&str, FieldType); 8] = checkpoint(Object(COMPONENT_IDENTITY));
const COMPONENT_CHECKPOINT: Structure = Structure {
    fields: &COMPONENT_CHECKPOINT_FIELDS,
    required: &["enabled"],
    rule: Some(one_checkpoint_source),
    ..PLAIN
};

const CLIENT_POD: Structure = Structure {
    fields: &[("name", CONTAINER_NAME), ("podTemplate", AnyObject)],
    required: &["name", "podTemplate"],
    ..PLAIN
};
const SERVICE_MODES: FieldType = OneOf(&["intraPod", "interPod"]);
const COMPONENT_MODES: FieldType = OneOf(&["IntraPod", "InterPod"]);
const SERVICE_GPU_MEMORY: Structure = Structure {
    fields: &[
        ("deviceClassName", Text),
        ("enabled", Flag),
        ("extraClientContainers", ListOf(&CONTAINER_NAME)),
        ("extraClientPods", ListOf(&Object(CLIENT_POD))),
        ("mode", SERVICE_MODES),
    ],
    required: &["enabled"],
    rule: Some(gpu_memory_clients),
    ..PLAIN
};
const COMPONENT_GPU_MEMORY: Structure = Structure {
    fields: &[
        ("deviceClassName", Text),
        ("extraClientContainers", ListOf(&CONTAINER_NAME)),
        ("extraClientPods", ListOf(&Object(CLIENT_POD))),
        ("mode", COMPONENT_MODES),
    ],
    rule: Some(gpu_memory_clients),
    ..PLAIN
};
const SERVICE_FAILOVER: Structure = Structure {
    fields: &[("enabled", Flag), ("mode", SERVICE_MODES), ("numShadows", POSITIVE)],
    required: &["enabled"],
    ..PLAIN
};
const COMPONENT_FAILOVER: Structure =
    Structure { fields: &[("mode", COMPONENT_MODES), ("numShadows", Integer(1, 1))], ..PLAIN };

const COMPONENT_EXPERIMENTS: Structure = Structure {
    fields: &[
        ("checkpoint", Object(COMPONENT_CHECKPOINT)),
        ("failover", Object(COMPONENT_FAILOVER)),
        ("gpuMemoryService", Object(COMPONENT_GPU_MEMORY)),
        ("grove", Object(Structure { fields: &[("forceScalingGroup", Flag)], ..PLAIN })),
    ],
    ..PLAIN
};
const COMPILATION_CACHE: Structure =
    Structure { fields: &[("pvcName", NON_EMPTY), ("mountPath", Text)], required: &["pvcName"], ..PLAIN };
const COMPONENT_MODEL: Structure =
    Structure { fields: &[("name", NON_EMPTY), ("revision", Text)], required: &["name"], ..PLAIN };
const SERVICE_MODEL: Structure =
    Structure { fields: &[("name", Text), ("revision", Text)], required: &["name"], ..PLAIN };

const COMPONENT: Structure = Structure {
    fields: &[
        ("name", COMPONENT_NAME),
        ("type", OneOf(&["frontend", "worker", "prefill", "decode", "planner", "epp"])),
        ("replicas", Integer(0, INT32)),
        ("minAvailable", POSITIVE),
        ("multinode", Object(MULTINODE)),
        ("modelRef", Object(COMPONENT_MODEL)),
        ("runtimeVersionOverride", VERSION),
        ("globalDynamoNamespace", Flag),
        ("sharedMemorySize", Quantity),
        ("scalingAdapter", Object(PLAIN)),
        ("frontendSidecar", Text),
        ("compilationCache", Object(COMPILATION_CACHE)),
        ("podTemplate", Object(POD_TEMPLATE)),
        ("eppConfig", Object(COMPONENT_EPP)),
        ("experimental", Object(COMPONENT_EXPERIMENTS)),
        ("providerOverride", Object(PROVIDER_OVERRIDE)),
        ("topologyConstraint", Object(COMPONENT_TOPOLOGY)),
    ],
    rule: Some(component),
    ..PLAIN
};

/// Resources of a service. Its quantities are strings.
const SERVICE_AMOUNTS: Structure = Structure {
    fields: &[("cpu", Text), ("memory", Text), ("gpu", Text), ("gpuType", Text), ("custom", TEXTS)],
    ..PLAIN
};
const CLAIM: Structure = Structure { fields: &[("name", Text), ("request", Text)], required: &["name"], ..PLAIN };
const SERVICE_RESOURCES: Structure = Structure {
    fields: &[
        ("requests", Object(SERVICE_AMOUNTS)),
        ("limits", Object(SERVICE_AMOUNTS)),
        ("claims", ListOf(&Object(CLAIM))),
    ],
    ..PLAIN
};
const SERVICE_MOUNT: Structure = Structure {
    fields: &[("name", Text), ("mountPoint", Text), ("useAsCompilationCache", Flag)],
    required: &["name"],
    ..PLAIN
};
const SHARED_MEMORY: Structure =
    Structure { fields: &[("disabled", Flag), ("size", Quantity)], rule: Some(shared_memory), ..PLAIN };
const ENABLED: Structure = Structure { fields: &[("enabled", Flag)], ..PLAIN };
const SIDECAR: Structure = Structure {
    fields: &[("image", Text), ("args", LIST_OF_TEXTS), ("envs", VARIABLES), ("envFromSecret", Text)],
    required: &["image"],
    ..PLAIN
};
const INGRESS: Structure = Structure {
    fields: &[
        ("annotations", TEXTS),
        ("enabled", Flag),
        ("host", Text),
        ("hostPrefix", Text),
        ("hostSuffix", Text),
        ("ingressControllerClassName", Text),
        ("labels", TEXTS),
        ("tls", Object(Structure { fields: &[("secretName", Text)], ..PLAIN })),
        ("useVirtualService", Flag),
        ("virtualServiceGateway", Text),
    ],
    ..PLAIN
};

const SCALING_POLICY: Structure = Structure {
    fields: &[("periodSeconds", INTEGER_32), ("type", Text), ("value", INTEGER_32)],
    required: &["periodSeconds", "type", "value"],
    ..PLAIN
};
const SCALING_RULES: Structure = Structure {
    fields: &[
        ("policies", ListOf(&Object(SCALING_POLICY))),
        ("selectPolicy", Text),
        ("stabilizationWindowSeconds", INTEGER_32),
        ("tolerance", Quantity),
    ],
    ..PLAIN
};
const SCALING_BEHAVIOR: Structure =
    Structure { fields: &[("scaleDown", Object(SCALING_RULES)), ("scaleUp", Object(SCALING_RULES))], ..PLAIN };
const METRIC_TARGET: Structure = Structure {
    fields: &[("averageUtilization", INTEGER_32), ("averageValue", Quantity), ("type", Text), ("value", Quantity)],
    required: &["type"],
    ..PLAIN
};
const METRIC_NAME: Structure = Structure {
    fields: &[("name", Text), ("selector", Kubernetes(kubernetes::SELECTOR))],
    required: &["name"],
    ..PLAIN
};
const CONTAINER_METRIC: Structure = Structure {
    fields: &[("container", Text), ("name", Text), ("target", Object(METRIC_TARGET))],
    required: &["container", "name", "target"],
    ..PLAIN
};
const NAMED_METRIC: Structure = Structure {
    fields: &[("metric", Object(METRIC_NAME)), ("target", Object(METRIC_TARGET))],
    required: &["metric", "target"],
    ..PLAIN
};
const DESCRIBED_OBJECT: Structure =
    Structure { fields: &[("apiVersion", Text), ("kind", Text), ("name", Text)], required: &["kind", "name"], ..PLAIN };
const OBJECT_METRIC: Structure = Structure {
    fields: &[
        ("describedObject", Object(DESCRIBED_OBJECT)),
        ("metric", Object(METRIC_NAME)),
        ("target", Object(METRIC_TARGET)),
    ],
    required: &["describedObject", "metric", "target"],
    ..PLAIN
};
const RESOURCE_METRIC: Structure =
    Structure { fields: &[("name", Text), ("target", Object(METRIC_TARGET))], required: &["name", "target"], ..PLAIN };
const METRIC: Structure = Structure {
    fields: &[
        ("containerResource", Object(CONTAINER_METRIC)),
        ("external", Object(NAMED_METRIC)),
        ("object", Object(OBJECT_METRIC)),
        ("pods", Object(NAMED_METRIC)),
        ("resource", Object(RESOURCE_METRIC)),
        ("type", Text),
    ],
    required: &["type"],
    ..PLAIN
};
const AUTOSCALING: Structure = Structure {
    fields: &[
        ("behavior", Object(SCALING_BEHAVIOR)),
        ("enabled", Flag),
        ("maxReplicas", INTEGER),
        ("metrics", ListOf(&Object(METRIC))),
        ("minReplicas", INTEGER),
    ],
    ..PLAIN
};

/// The main container of a service has a field of its own in the pod.
pub const SERVICE_POD_FIELDS: &[(&str, FieldType)] = &[("mainContainer", Kubernetes(kubernetes::CONTAINER))];
const SERVICE: Structure = Structure {
    fields: &[
        ("annotations", TEXTS),
        ("labels", TEXTS),
        ("componentType", Text),
        ("subComponentType", Text),
        ("serviceName", Text),
        ("dynamoNamespace", Text),
        ("replicas", Integer(0, INT32)),
        ("minAvailable", POSITIVE),
        ("multinode", Object(MULTINODE)),
        ("modelRef", Object(SERVICE_MODEL)),
        ("runtimeVersionOverride", VERSION),
        ("globalDynamoNamespace", Flag),
        ("envs", VARIABLES),
        ("envFromSecret", Text),
        ("resources", Object(SERVICE_RESOURCES)),
        ("volumeMounts", ListOf(&Object(SERVICE_MOUNT))),
        ("sharedMemory", Object(SHARED_MEMORY)),
        ("scalingAdapter", Object(ENABLED)),
        ("gpuMemoryService", Object(SERVICE_GPU_MEMORY)),
        ("failover", Object(SERVICE_FAILOVER)),
        ("checkpoint", Object(SERVICE_CHECKPOINT)),
        ("frontendSidecar", Object(SIDECAR)),
        ("extraPodMetadata", Object(EXTRA_METADATA)),
        ("extraPodSpec", Pod(SERVICE_POD_FIELDS)),
        ("autoscaling", Object(AUTOSCALING)),
        ("ingress", Object(INGRESS)),
        ("livenessProbe", Kubernetes(kubernetes::PROBE)),
        ("readinessProbe", Kubernetes(kubernetes::PROBE)),
        ("eppConfig", Object(SERVICE_EPP)),
        ("providerOverride", Object(PROVIDER_OVERRIDE)),
        ("topologyConstraint", Object(COMPONENT_TOPOLOGY)),
    ],
    rule: Some(available_replicas),
    ..PLAIN
};

/// Restarts an existing graph.
const RESTART: Structure = Structure {
    fields: &[
        ("id", Text),
        (
            "strategy",
            Object(Structure {
                fields: &[("order", LIST_OF_TEXTS), ("type", OneOf(&["Sequential", "Parallel"]))],
                ..PLAIN
            }),
        ),
    ],
    ..PLAIN
};
const BETA_TOPOLOGY: Structure = Structure {
    fields: &[("clusterTopologyName", NON_EMPTY), ("packDomain", DOMAIN)],
    required: &["clusterTopologyName"],
    ..PLAIN
};
const ALPHA_TOPOLOGY: Structure = Structure {
    fields: &[("topologyProfile", NON_EMPTY), ("packDomain", DOMAIN)],
    required: &["topologyProfile"],
    ..PLAIN
};
const VOLUME_CLAIM: Structure = Structure {
    fields: &[("create", Flag), ("name", Text), ("size", Quantity), ("storageClass", Text), ("volumeAccessMode", Text)],
    required: &["name"],
    rule: Some(created_claim),
    ..PLAIN
};

pub const BETA: Structure = Structure {
    fields: &[
        ("annotations", TEXTS),
        ("labels", TEXTS),
        ("backendFramework", BACKENDS),
        ("priorityClassName", Text),
        ("env", VARIABLES),
        ("components", ListOf(&Object(COMPONENT))),
        ("experimental", Object(SPEC_EXPERIMENTS)),
        ("providerOverride", Object(PROVIDER_OVERRIDE)),
        ("restart", Object(RESTART)),
        ("topologyConstraint", Object(BETA_TOPOLOGY)),
    ],
    rule: Some(spec),
    ..PLAIN
};
pub const ALPHA: Structure = Structure {
    fields: &[
        ("annotations", TEXTS),
        ("labels", TEXTS),
        ("backendFramework", BACKENDS),
        ("priorityClassName", Text),
        ("envs", VARIABLES),
        ("pvcs", ListOf(&Object(VOLUME_CLAIM))),
        ("services", MapOf(&Object(SERVICE))),
        ("experimental", Object(SPEC_EXPERIMENTS)),
        ("providerOverride", Object(PROVIDER_OVERRIDE)),
        ("restart", Object(RESTART)),
        ("topologyConstraint", Object(ALPHA_TOPOLOGY)),
    ],
    rule: Some(spec),
    ..PLAIN
};

fn is_bounded(text: &str, end: fn(char) -> bool, more: fn(char) -> bool) -> bool {
    text.starts_with(end) && text.ends_with(end) && text.chars().all(|c| end(c) || more(c))
}

fn is_domain(text: &str) -> bool {
    is_bounded(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), |c| c == '-')
}

fn is_version(text: &str) -> bool {
    let is_number = |part: &str| {
        (1..=4).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    text.split('.').count() == 3 && text.split('.').all(is_number)
}

fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_part = |part: &str| part.len() <= 63 && is_domain(part);
    prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_part))
        && name.len() <= 63
        && is_bounded(name, |c| c.is_ascii_alphanumeric(), |c| matches!(c, '-' | '_' | '.'))
}

fn is_filled(value: Option<&Value>) -> bool {
    value.is_some_and(|value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => false,
    })
}

/// A new graph has nothing to restart. The number of components and claims is limited.
fn spec(spec: &JsonObject) -> Option<String> {
    if spec.contains_key("restart") {
        return Some(".restart must be absent: it restarts a graph that exists already".to_owned());
    }
    let count = |list: &str| match spec.get(list) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    };
    let limits = [("components", MAX_COMPONENTS), ("services", MAX_COMPONENTS), ("pvcs", MAX_CLAIMS)];
    let (list, most) = limits.into_iter().find(|(list, most)| count(list) > *most)?;
    Some(format!(".{list} has {} entries, but a graph has at most {most}", count(list)))
}

fn component(component: &JsonObject) -> Option<String> {
    let kind = component.get("type").and_then(Value::as_str);
    let misplaced = component.contains_key("eppConfig") && kind.is_some_and(|kind| kind != "epp");
    let misplaced = misplaced.then(|| ".eppConfig must be absent unless type is epp".to_owned());
    misplaced.or_else(|| available_replicas(component))
}

/// The replicas of the generated graph count if the override does not set them.
fn available_replicas(component: &JsonObject) -> Option<String> {
    let number = |field: &str| component.get(field).and_then(Value::as_i64);
    let (least, replicas) = (number("minAvailable")?, number("replicas")?);
    (replicas > 0 && least > replicas)
        .then(|| format!(".minAvailable must be at most the number of replicas, {replicas}"))
}

fn kv_transfer(policy: &JsonObject) -> Option<String> {
    if policy.contains_key("labelKey") == policy.contains_key("clusterTopologyName") {
        return Some(" must have either labelKey or clusterTopologyName".to_owned());
    }
    let preferred = policy.get("enforcement").is_some_and(|enforcement| enforcement == "preferred");
    (policy.contains_key("preferredWeight") != preferred).then(|| {
        let words = if preferred { "is required if" } else { "must be absent unless" };
        format!(".preferredWeight {words} enforcement is preferred")
    })
}

fn one_epp_source(config: &JsonObject) -> Option<String> {
    (config.contains_key("configMapRef") == config.contains_key("config"))
        .then(|| " must have either configMapRef or config".to_owned())
}

fn one_checkpoint_source(checkpoint: &JsonObject) -> Option<String> {
    (checkpoint.contains_key("job") && is_filled(checkpoint.get("checkpointRef")))
        .then(|| ".job must be absent if checkpointRef is set".to_owned())
}

fn gpu_memory_clients(service: &JsonObject) -> Option<String> {
    if is_filled(service.get("extraClientPods")) {
        return Some(".extraClientPods must be empty: Dynamo does not support it yet".to_owned());
    }
    let mode = service.get("mode").and_then(Value::as_str).unwrap_or("IntraPod");
    (is_filled(service.get("extraClientContainers")) && !mode.eq_ignore_ascii_case("IntraPod"))
        .then(|| ".extraClientContainers must be empty unless mode is intra-pod".to_owned())
}

/// A size that the override does not set may be in the generated graph.
fn shared_memory(memory: &JsonObject) -> Option<String> {
    let amount = memory.get("size").and_then(|size| match size {
        Value::String(text) => billionths(text),
        size => billionths(&size.to_string()),
    })?;
    (amount <= 0 && memory.get("disabled") != Some(&Value::Bool(true)))
        .then(|| ".size must be greater than 0 unless disabled is true".to_owned())
}

fn created_claim(claim: &JsonObject) -> Option<String> {
    let created = claim.get("create") == Some(&Value::Bool(true));
    let absent = ["size", "storageClass", "volumeAccessMode"].into_iter().find(|field| !claim.contains_key(*field))?;
    created.then(|| format!(" has no {absent}, which is required if create is true"))
}

fn executor(metadata: &JsonObject) -> Option<String> {
    let wanted = metadata.get("annotations")?.get(EXECUTOR)?.as_str()?;
    (!["mp", "ray"].iter().any(|known| wanted.eq_ignore_ascii_case(known)))
        .then(|| format!(".annotations[{EXECUTOR}] must be mp or ray"))
}
