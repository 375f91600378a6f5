//! What the author of a request should know, of its fields and annotations alone: one function for each remark.
//! Comes in: the request; goes out: findings that refuse nothing, as warnings at admission and in a condition later.

use serde_json::Number;
use steersman_api::dynamo::v1beta1::{Backend, DynamoGraphDeploymentRequestSpec};
use steersman_reconcile::{Finding, Severity};

use super::version::of_image;
use crate::dynamo::asked::{self, Kept};
use crate::dynamo::snapshot::ObservedObject;
use crate::dynamo::{graph, names, profile_job};

/// What the profiler allows for the names of a graph and of a component together.
const POD_NAME_LIMIT: usize = 45;

/// Every graph has it.
const FRONTEND: &str = "Frontend";
/// The longest name that the profiler gives to a component.
const LONGEST: &str = "VllmPrefillWorker";

pub fn remarks(object: &ObservedObject) -> Vec<Finding> {
    let spec = &object.spec;
    let kept = asked::kept(object);
    let found = [
        long_graph_name(object),
        two_loads(spec),
        two_targets(spec),
        not_positive(spec),
        preferred_in_vain(spec),
        mounted_in_vain(&kept),
        kept_in_vain(&kept),
        unreadable(&kept),
        ignored_overrides(spec),
        unknown_override(spec),
        early_override(spec),
    ];
    found.into_iter().flatten().collect()
}

fn remark(reason: &'static str, message: String, remedy: impl Into<String>) -> Finding {
    Finding { severity: Severity::Warning, reason, message, remedy: remedy.into() }
}

/// Which components there will be is the profiler's to choose. One with a shorter name may do, and older profilers do not
/// look at all.
fn long_graph_name(object: &ObservedObject) -> Option<Finding> {
    let wanted = object.spec.overrides.as_ref().and_then(|overrides| overrides.dgd.as_ref());
    let graph = names::graph(&object.name, wanted);
    let vllm = matches!(object.spec.backend, None | Some(Backend::Auto | Backend::Vllm));
    let component = if vllm && !asked::simulated(&object.spec) { LONGEST } else { FRONTEND };
    let own = format!("{}-dgd", object.name);
    let (path, shorter) = if graph == own {
        let most = POD_NAME_LIMIT - component.len() - (own.len() - object.name.len());
        (
            "metadata.name",
            format!(
                "Create the request under a name of at most {most} characters, or name the graph in \
                 spec.overrides.dgd.metadata.name."
            ),
        )
    } else {
        let most = POD_NAME_LIMIT - component.len();
        ("spec.overrides.dgd.metadata.name", format!("Use a name of at most {most} characters."))
    };
    (graph.len() + component.len() > POD_NAME_LIMIT).then(|| {
        remark(
            "ProfilerWillRefuse",
            format!(
                "{path}: DGD name '{graph}' (length {}) combined with component name {component} exceeds the \
                 {POD_NAME_LIMIT}-character pod-naming limit, and the profiler ends with this error if it chooses such a \
                 component.",
                graph.len()
            ),
            shorter,
        )
    })
}

fn two_loads(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let workload = spec.workload.as_ref()?;
    (workload.concurrency.is_some() && workload.request_rate.is_some()).then(|| {
        remark(
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
        "ProfilerWillRefuse",
        format!("spec.sla.{name}: SLA '{name}' must be positive (got {value})."),
        "Set it to the milliseconds that you can wait, or the profiler ends with this error.",
    ))
}

/// It is handed on all the same: a later profiler may read it.
fn preferred_in_vain(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    spec.sla.as_ref()?.optimization_type?;
    Some(remark(
        "FieldIgnored",
        "spec.sla.optimizationType is handed to the profiler, and today's profilers do not act on it.".to_owned(),
        "Say what matters in spec.sla.ttft and spec.sla.itl, or in spec.sla.e2eLatency.",
    ))
}

fn mounted_in_vain(kept: &Kept) -> Option<Finding> {
    let (name, key) = kept.config_map.as_ref()?;
    Some(remark(
        "ConfigMapRefUnread",
        format!(
            "metadata.annotations[nvidia.com/dgdr-config-map-ref]: ConfigMap {name} (key {key}) is mounted at /config in \
             the profiling Job, where today's profilers do not look."
        ),
        "Put what shall differ in the generated graph into spec.overrides.dgd.",
    ))
}

fn kept_in_vain(kept: &Kept) -> Option<Finding> {
    (!kept.ignored.is_empty()).then(|| {
        remark(
            "FieldIgnored",
            format!("Kept from v1alpha1 and without effect: {}.", kept.ignored.join(", ")),
            "Name, label and change the graph in spec.overrides.dgd; it is always created in the request's namespace. What \
             a profiler can be told has a field in v1beta1.",
        )
    })
}

fn unreadable(kept: &Kept) -> Option<Finding> {
    let why = kept.unreadable.as_ref()?;
    Some(remark(
        "AnnotationUnreadable",
        format!("The fields that v1alpha1 keeps in annotations cannot be read: {why}."),
        "Correct or remove the annotations that begin with nvidia.com/dgdr-.",
    ))
}

fn ignored_overrides(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let wanted = spec.overrides.as_ref()?.profiling_job.as_ref()?;
    let ignored = profile_job::overrides::ignored(wanted);
    let remedy =
        "Remove them; deadlines, placement, volumes, security and the environment of container profiler can be set.";
    let copier = profile_job::overrides::wants_copier(wanted)
        .then_some(" Container output-copier runs a program of the operator's own image, which --operator-image sets.");
    (!ignored.is_empty()).then(|| {
        remark(
            "FieldIgnored",
            format!("Not taken over from spec.overrides.profilingJob: {}.", ignored.join(", ")),
            format!("{remedy}{}", copier.unwrap_or_default()),
        )
    })
}

/// Profilers that merge by themselves hand it on to the API server.
fn unknown_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let unknown = graph::merge::unknown(spec.overrides.as_ref()?.dgd.as_ref()?)?;
    Some(remark(
        "ProfilerWillRefuse",
        format!(
            "spec.overrides.dgd: {unknown}, and a profiler that merges by the schema of graphs ends with this error."
        ),
        "Correct its name, or move it to where graphs have it: what is of pods belongs to a component, into extraPodSpec \
         (v1alpha1) or podTemplate (v1beta1).",
    ))
}

/// Profilers before 1.5 generate graphs of v1alpha1. Those of 1.4 have overrides merged by our program, which translates.
fn early_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<Finding> {
    let wanted = spec.overrides.as_ref()?.dgd.as_ref()?;
    let beta = wanted.get("apiVersion")?.as_str()?.ends_with("/v1beta1") && wanted.contains_key("spec");
    let (image, version) = spec.image.as_deref().and_then(|image| Some((image, of_image(image)?))).filter(|_| beta)?;
    let newer = "Name an image of Dynamo 1.5 or later in spec.image";
    if version < [1, 4, 0] {
        return Some(remark(
            "OverrideMisread",
            format!(
                "spec.overrides.dgd is of nvidia.com/v1beta1, and the profiler in {image} takes every override for one of \
                 nvidia.com/v1alpha1."
            ),
            format!("{newer}, or write the override in v1alpha1."),
        ));
    }
    let field = graph::merge::unsaid(wanted).filter(|_| version < [1, 5, 0])?;
    Some(remark(
        "ProfilerWillRefuse",
        format!(
            "spec.overrides.dgd: {field} is no field of nvidia.com/v1alpha1, in which the profiler in {image} generates graphs."
        ),
        format!("{newer}, or leave the field out."),
    ))
}
