//! Whether a request can be acted on.
//! Comes in: what was seen; goes out: what is wrong with the spec, which only its author can mend, what the cluster lacks,
//! which is awaited, and what its author should know.

use serde_json::Number;
use steersman_api::dynamo::v1beta1::{Backend, DynamoGraphDeploymentRequestSpec, GpuSku, SearchStrategy};

use super::asked::{self, Acceptance, Kept};
use super::seen::Seen;
use super::{graph, hardware, names, profile_job};
use crate::{Finding, Severity};

/// What stands against profiling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// Of the spec.
    pub wrong: Vec<Finding>,
    /// Of the cluster or the operator's settings; gone as soon as it is mended.
    pub missing: Vec<Finding>,
}

/// All findings as running text, what is wrong before what to do about it.
pub fn sentences(findings: &[Finding]) -> String {
    let told = findings.iter().map(|Finding { message, remedy, .. }| {
        let stop = if message.ends_with(['.', '!', '?']) { "" } else { "." };
        format!("{message}{stop} {remedy}")
    });
    told.collect::<Vec<_>>().join(" ")
}

/// Before profiling begins. Afterwards the spec is what it is.
pub fn before_profiling(seen: &Seen) -> Checks {
    let spec = &seen.object.spec;
    let wrong = [long_name(seen), thorough_auto(spec), no_image(seen), unknown_sku(spec), graph_override(spec)];
    let kept = asked::kept(&seen.object);
    let missing = [
        model_cache(seen),
        output_claim(seen, &kept),
        config_map(seen, &kept),
        operator_image(seen),
        cluster_role(seen),
        hardware::complete(spec.hardware.as_ref(), &seen.hardware).err(),
    ];
    Checks { wrong: wrong.into_iter().flatten().collect(), missing: missing.into_iter().flatten().collect() }
}

/// What holds in every phase, for the condition that tells what became of the spec's fields.
pub fn remarks(seen: &Seen) -> Vec<Finding> {
    let spec = &seen.object.spec;
    let kept = asked::kept(&seen.object);
    let mut found: Vec<Finding> = [
        changed(seen),
        version_unknown(seen),
        two_loads(spec),
        two_targets(spec),
        not_positive(spec),
        mounted_in_vain(&kept),
        kept_in_vain(&kept),
        unreadable(&kept),
        ignored_overrides(spec),
        no_token(seen),
    ]
    .into_iter()
    .flatten()
    .collect();
    // Stable: within one severity the order of the rules stays.
    found.sort_by_key(|finding| finding.severity);
    found
}

fn wrong(message: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Blocker, reason: "ValidationFailed", message, remedy: remedy.to_owned() }
}

fn remark(severity: Severity, reason: &'static str, message: String, remedy: &str) -> Finding {
    Finding { severity, reason, message, remedy: remedy.to_owned() }
}

fn long_name(seen: &Seen) -> Option<Finding> {
    let name = &seen.object.name;
    (name.len() > names::NAME_LIMIT).then(|| {
        wrong(
            format!(
                "metadata.name has {} characters, and the profiling Job {} can have no label of that length",
                name.len(),
                names::profiling_job(name)
            ),
            &format!("Create the request under a name of at most {} characters.", names::NAME_LIMIT),
        )
    })
}

fn thorough_auto(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let auto = spec.backend.unwrap_or(Backend::Auto) == Backend::Auto;
    (auto && spec.search_strategy == Some(SearchStrategy::Thorough)).then(|| {
        wrong(
            "spec.searchStrategy \"thorough\" is incompatible with spec.backend \"auto\": set spec.backend to a specific \
             backend (sglang, trtllm, or vllm)"
                .to_owned(),
            "Or set spec.searchStrategy to rapid.",
        )
    })
}

fn no_image(seen: &Seen) -> Option<Finding> {
    asked::image(&seen.settings, &seen.object.spec).is_none().then(|| {
        wrong(
            "spec.image is required but not set; ensure the defaulting webhook ran or set spec.image explicitly"
                .to_owned(),
            "Start the operator with --dgdr-default-image to have one for all requests.",
        )
    })
}

fn unknown_sku(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    match spec.hardware.as_ref()?.gpu_sku.as_ref()? {
        GpuSku::Other(text) => Some(wrong(
            format!("spec.hardware.gpuSku is {text:?}, which the profiler does not know"),
            &format!("Set it to one of {}.", hardware::sku::all()),
        )),
        _ => None,
    }
}

/// The profiler would only come to it at the end of its work.
fn graph_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let wanted = spec.overrides.as_ref()?.dgd.as_ref()?;
    let problem = graph::merge::problem(wanted)?;
    Some(wrong(format!("spec.overrides.dgd: {problem}"), "Change it: profiling begins as soon as it can be merged."))
}

fn lacking(message: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Blocker, reason: "ValidationFailed", message, remedy: remedy.to_owned() }
}

fn model_cache(seen: &Seen) -> Option<Finding> {
    let name = asked::given(seen.object.spec.model_cache.as_ref()?.pvc_name.as_deref())?;
    (seen.named.model_cache == Some(false)).then(|| {
        lacking(
            format!("model cache PVC {name} not found in namespace {}", seen.object.namespace),
            "Create the PersistentVolumeClaim, or correct spec.modelCache.pvcName.",
        )
    })
}

fn output_claim(seen: &Seen, kept: &Kept) -> Option<Finding> {
    let name = kept.output_claim.as_ref()?;
    (seen.named.output_claim == Some(false)).then(|| {
        lacking(
            format!("output PVC {name} not found in namespace {}", seen.object.namespace),
            "Create the PersistentVolumeClaim, or remove the annotation nvidia.com/dgdr-output-pvc \
             (spec.profilingConfig.outputPVC in v1alpha1).",
        )
    })
}

fn config_map(seen: &Seen, kept: &Kept) -> Option<Finding> {
    let (name, key) = kept.config_map.as_ref()?;
    (seen.named.config_map == Some(false)).then(|| {
        lacking(
            format!("ConfigMap {name} with key {key} not found in namespace {}", seen.object.namespace),
            "Create it, or remove the annotation nvidia.com/dgdr-config-map-ref \
             (spec.profilingConfig.configMapRef in v1alpha1).",
        )
    })
}

fn operator_image(seen: &Seen) -> Option<Finding> {
    let overridden = seen.object.spec.overrides.as_ref().is_some_and(|overrides| overrides.dgd.is_some());
    let message = if overridden {
        "operator image must be configured when a DGD override is present"
    } else {
        "operator image must be configured: the profiling Job delivers its result with a program in it"
    };
    seen.settings
        .operator_image
        .is_empty()
        .then(|| lacking(message.to_owned(), "Start the operator with --operator-image."))
}

fn cluster_role(seen: &Seen) -> Option<Finding> {
    let role = seen.settings.profiling_cluster_role.as_ref()?;
    (!seen.settings.profiling_cluster_role_found).then(|| {
        lacking(
            format!("cluster role {role:?} does not exist: ensure it is created by Helm before deploying components"),
            "Profiling begins as soon as it is there.",
        )
    })
}

fn changed(seen: &Seen) -> Option<Finding> {
    let phase = asked::phase(&seen.object).filter(|phase| super::phase::is_fixed(*phase))?;
    (asked::acceptance(&seen.object) == Acceptance::Changed).then(|| {
        remark(
            Severity::Blocker,
            "SpecChangeRejected",
            format!(
                "Cannot modify spec in phase '{phase:?}'. DynamoGraphDeploymentRequest is immutable once profiling \
                 starts. Create a new resource with a different name instead."
            ),
            "This request goes on with the spec that profiling began with; change the spec back to it to be rid of this \
             message.",
        )
    })
}

/// The graph's admission demands it; the version of the profiler's image is what the workers' images get.
fn version_unknown(seen: &Seen) -> Option<Finding> {
    let spec = &seen.object.spec;
    let image = asked::image(&seen.settings, spec)?;
    let known = asked::given(spec.runtime_version_override.as_deref()).is_some() || has_version(image);
    (!known).then(|| {
        remark(
            Severity::Warning,
            "RuntimeVersionUnknown",
            "spec.runtimeVersionOverride: is required when spec.image has no parseable semantic-version tag".to_owned(),
            "Set it, such as to 1.4.0, or the generated graph may be refused.",
        )
    })
}

/// Whether the tag is a version, as in `dynamo-planner:v1.2.3-cuda13`.
pub fn has_version(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    let Some((_, tag)) = last.rsplit_once(':') else { return false };
    let core = tag.strip_prefix(['v', 'V']).unwrap_or(tag);
    let (core, rest) = core.find(['-', '+']).map_or((core, ""), |place| core.split_at(place));
    let number =
        |part: &str| part == "0" || (!part.starts_with('0') && part.bytes().all(|digit| digit.is_ascii_digit()));
    let parts: Vec<&str> = core.split('.').collect();
    let words = |text: &str| {
        text.split('.').all(|word| !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
    };
    let suffix = match rest.strip_prefix('-') {
        Some(before) => before.split('+').all(words),
        None => rest.strip_prefix('+').is_none_or(words),
    };
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && number(part)) && suffix
}

fn two_loads(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let workload = spec.workload.as_ref()?;
    (workload.concurrency.is_some() && workload.request_rate.is_some()).then(|| {
        remark(
            Severity::Warning,
            "ProfilerWillRefuse",
            "spec.workload: Only one of 'concurrency' or 'requestRate' can be provided, not both.".to_owned(),
            "Remove one of them, or the profiler ends with this error.",
        )
    })
}

fn two_targets(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let sla = spec.sla.as_ref()?;
    (sla.e2e_latency.is_some() && (sla.ttft.is_some() || sla.itl.is_some())).then(|| {
        remark(
            Severity::Warning,
            "ProfilerWillRefuse",
            "spec.sla: SLA must specify either (ttft and itl) or e2eLatency, not both.".to_owned(),
            "Remove e2eLatency, or ttft and itl, or the profiler ends with this error.",
        )
    })
}

fn not_positive(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let sla = spec.sla.as_ref()?;
    let targets: [(&str, Option<&Number>); 3] =
        [("ttft", sla.ttft.as_ref()), ("itl", sla.itl.as_ref()), ("e2eLatency", sla.e2e_latency.as_ref())];
    let (name, value) = targets.into_iter().find_map(|(name, value)| {
        let value = value?;
        value.as_f64().is_some_and(|number| number <= 0.0).then_some((name, value))
    })?;
    Some(remark(
        Severity::Warning,
        "ProfilerWillRefuse",
        format!("spec.sla.{name}: SLA '{name}' must be positive (got {value})."),
        "Set it to the milliseconds that you can wait, or the profiler ends with this error.",
    ))
}

fn mounted_in_vain(kept: &Kept) -> Option<Finding> {
    let (name, key) = kept.config_map.as_ref()?;
    Some(remark(
        Severity::Warning,
        "ConfigMapRefUnread",
        format!(
            "ConfigMap {name} (key {key}) is mounted at /config in the profiling Job, where today's profilers do not look."
        ),
        "Put what shall differ in the generated graph into spec.overrides.dgd.",
    ))
}

fn kept_in_vain(kept: &Kept) -> Option<Finding> {
    (!kept.ignored.is_empty()).then(|| {
        remark(
            Severity::Warning,
            "FieldIgnored",
            format!("Kept from v1alpha1 and without effect: {}.", kept.ignored.join(", ")),
            "Name and label the graph in metadata of spec.overrides.dgd; it is always created in the request's namespace.",
        )
    })
}

fn unreadable(kept: &Kept) -> Option<Finding> {
    let why = kept.unreadable.as_ref()?;
    Some(remark(
        Severity::Warning,
        "AnnotationUnreadable",
        format!("The fields that v1alpha1 keeps in annotations cannot be read: {why}."),
        "Correct or remove the annotations that begin with nvidia.com/dgdr-.",
    ))
}

fn ignored_overrides(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let wanted = spec.overrides.as_ref()?.profiling_job.as_ref()?;
    let ignored = profile_job::overrides::ignored(wanted);
    (!ignored.is_empty()).then(|| {
        remark(
            Severity::Warning,
            "FieldIgnored",
            format!("Not taken over from spec.overrides.profilingJob: {}.", ignored.join(", ")),
            "Remove them; deadlines, placement, volumes, security and the environment of container profiler can be set.",
        )
    })
}

/// The Job starts without it, and only models that need no token can be downloaded.
fn no_token(seen: &Seen) -> Option<Finding> {
    (!seen.named.token_secret).then(|| {
        remark(
            Severity::Info,
            "TokenSecretMissing",
            format!("There is no Secret {} in namespace {}.", names::TOKEN_SECRET, seen.object.namespace),
            &format!("Create it with key {} if the model cannot be downloaded without a token.", names::TOKEN_KEY),
        )
    })
}
