//! Remarks about the fields and annotations of a request: one function for each. They are warnings at admission, and
//! part of a condition later.

use steersman_api::dynamo::v1beta1::{Backend, DynamoGraphDeploymentRequestSpec};
use steersman_reconcile::{FieldError, FieldPath, Message, message, path};

use super::rules::MISPLACED_FIELD;
use super::version::{merges_with_our_program, of_image};
use crate::dynamo::request::{self, AlphaFields, CONFIG_MAP_REF};
use crate::dynamo::snapshot::ObservedObject;
use crate::dynamo::{graph, names, profile_job};

const PROFILER_WILL_REFUSE: &str = "ProfilerWillRefuse";
const FIELD_IGNORED: &str = "FieldIgnored";

/// The profiler's limit for the names of a graph and of a component together.
const POD_NAME_LIMIT: usize = 45;

/// A component of every graph.
const FRONTEND: &str = "Frontend";
/// The longest component name of the profiler.
const LONGEST_COMPONENT: &str = "VllmPrefillWorker";

pub fn remarks(object: &ObservedObject) -> Vec<FieldError> {
    let spec = &object.spec;
    let alpha = request::alpha_fields(object);
    let found = [
        long_graph_name(object),
        two_loads(spec),
        two_targets(spec),
        not_positive(spec),
        no_gpus(spec),
        ignored_optimization_type(spec),
        unread_config_map(&alpha),
        ignored_alpha_fields(&alpha),
        unreadable_annotations(&alpha),
        ignored_overrides(spec),
        unknown_override(spec),
        ignored_graph_metadata(spec),
        early_override(spec),
    ];
    found.into_iter().flatten().collect()
}

/// A remark whose text does not begin with the path and a colon.
fn stated(
    path: FieldPath,
    reason: &'static str,
    statement: impl Into<Message>,
    remedy: impl Into<Message>,
) -> FieldError {
    let statement = statement.into();
    FieldError::new(path, reason, statement.clone(), remedy).stated_as(statement)
}

/// The profiler chooses the components. One with a shorter name may fit, and older profilers do not check at all.
fn long_graph_name(object: &ObservedObject) -> Option<FieldError> {
    let graph = names::graph(&object.name, request::graph_override(&object.spec));
    let vllm = matches!(object.spec.backend, None | Some(Backend::Auto | Backend::Vllm));
    let component = if vllm && !request::uses_mocker(&object.spec) { LONGEST_COMPONENT } else { FRONTEND };
    let own = format!("{}-dgd", object.name);
    let (path, shorter) = if graph == own {
        let most = POD_NAME_LIMIT - component.len() - (own.len() - object.name.len());
        (
            path!(metadata.name),
            message![
                format!("Create the request under a name of at most {most} characters, or name the graph in "),
                path!(spec.overrides.dgd.metadata.name),
                "."
            ],
        )
    } else {
        let most = POD_NAME_LIMIT - component.len();
        (path!(spec.overrides.dgd.metadata.name), format!("Use a name of at most {most} characters.").into())
    };
    (graph.len() + component.len() > POD_NAME_LIMIT).then(|| {
        FieldError::new(
            path,
            PROFILER_WILL_REFUSE,
            format!(
                "DGD name '{graph}' (length {}) combined with component name {component} exceeds the \
                 {POD_NAME_LIMIT}-character pod-naming limit. If the profiler chooses this component, it ends with \
                 this error.",
                graph.len()
            ),
            shorter,
        )
    })
}

fn two_loads(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let workload = spec.workload.as_ref()?;
    (workload.concurrency.is_some() && workload.request_rate.is_some()).then(|| {
        FieldError::new(
            path!(spec.workload),
            PROFILER_WILL_REFUSE,
            "Only one of 'concurrency' or 'requestRate' can be provided, not both.",
            "Remove one of the two fields, or the profiler ends with this error.",
        )
    })
}

fn two_targets(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let sla = spec.sla.as_ref()?;
    (sla.e2e_latency.is_some() && (sla.ttft.is_some() || sla.itl.is_some())).then(|| {
        FieldError::new(
            path!(spec.sla),
            PROFILER_WILL_REFUSE,
            "SLA must specify either (ttft and itl) or e2eLatency, not both.",
            "Remove e2eLatency, or ttft and itl, or the profiler ends with this error.",
        )
    })
}

fn not_positive(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let sla = spec.sla.as_ref()?;
    let targets = [("ttft", &sla.ttft), ("itl", &sla.itl), ("e2eLatency", &sla.e2e_latency)];
    targets.into_iter().find_map(|(name, value)| {
        let value = value.as_ref()?;
        value.as_f64().is_some_and(|number| number <= 0.0).then(|| {
            FieldError::new(
                path!(spec.sla).field(name),
                PROFILER_WILL_REFUSE,
                format!("SLA '{name}' must be positive (got {value})."),
                "Set a positive number of milliseconds, or the profiler ends with this error.",
            )
        })
    })
}

/// The schema has no minimum.
fn no_gpus(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let count = spec.hardware.as_ref()?.num_gpus_per_node.filter(|count| *count <= 0)?;
    Some(FieldError::new(
        path!(spec.hardware.numGpusPerNode),
        PROFILER_WILL_REFUSE,
        format!("'hardware.numGpusPerNode' must be a positive integer (got {count})."),
        "Set a positive number, or remove the field to have it discovered; otherwise the profiler ends with this error.",
    ))
}

/// The field is passed on all the same: a later profiler may read it.
fn ignored_optimization_type(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    spec.sla.as_ref()?.optimization_type?;
    let (path, ttft, itl) = (path!(spec.sla.optimizationType), path!(spec.sla.ttft), path!(spec.sla.itl));
    Some(stated(
        path.clone(),
        FIELD_IGNORED,
        message![path, " is passed to the profiler, but current profilers ignore it."],
        message!["Set ", ttft, " and ", itl, ", or ", path!(spec.sla.e2eLatency), ", instead."],
    ))
}

fn unread_config_map(alpha: &AlphaFields) -> Option<FieldError> {
    let (name, key) = alpha.config_map.as_ref()?;
    Some(FieldError::new(
        path!(metadata.annotations).key(CONFIG_MAP_REF),
        "ConfigMapRefUnread",
        format!(
            "ConfigMap {name} (key {key}) is mounted at /config in the profiling Job, but current profilers do not \
             read it."
        ),
        message!["To change the generated graph, set ", path!(spec.overrides.dgd), "."],
    ))
}

fn ignored_alpha_fields(alpha: &AlphaFields) -> Option<FieldError> {
    (!alpha.ignored.is_empty()).then(|| {
        stated(
            path!(metadata.annotations),
            FIELD_IGNORED,
            // The paths are those of v1alpha1 for every reader.
            format!("Fields of v1alpha1 without effect: {}.", alpha.ignored.join(", ")),
            message![
                "To name, label or change the graph, set ",
                path!(spec.overrides.dgd),
                "; the graph is always created in the namespace of the request. The settings of the profiler are \
                 fields of v1beta1."
            ],
        )
    })
}

fn unreadable_annotations(alpha: &AlphaFields) -> Option<FieldError> {
    let why = alpha.unreadable.as_ref()?;
    Some(stated(
        path!(metadata.annotations),
        "AnnotationUnreadable",
        format!("The annotations with fields of v1alpha1 cannot be read: {why}."),
        "Correct or remove the annotations that begin with nvidia.com/dgdr-.",
    ))
}

fn ignored_overrides(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let wanted = spec.overrides.as_ref()?.profiling_job.as_ref()?;
    let ignored = profile_job::overrides::ignored(wanted);
    let remedy = "Remove these fields; deadlines, placement, volumes, security and the environment of container profiler \
                  can be set.";
    let copier = profile_job::overrides::has_sidecar_image(wanted)
        .then_some(" Container output-copier runs the operator's own image, which --operator-image sets.");
    (!ignored.is_empty()).then(|| {
        let path = path!(spec.overrides.profilingJob);
        stated(
            path.clone(),
            FIELD_IGNORED,
            message!["Ignored fields of ", path, format!(": {}.", ignored.join(", "))],
            format!("{remedy}{}", copier.unwrap_or_default()),
        )
    })
}

/// Profilers that merge by themselves pass the field on to the API server.
fn unknown_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let unknown = graph::merge::unknown(request::graph_override(spec)?)?;
    // Otherwise the request is invalid.
    (!merges_with_our_program(spec, None)).then(|| {
        FieldError::new(
            path!(spec.overrides.dgd),
            PROFILER_WILL_REFUSE,
            format!("{unknown}. A profiler that merges by the schema of graphs ends with this error."),
            MISPLACED_FIELD,
        )
    })
}

fn ignored_graph_metadata(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let ignored = graph::merge::ignored_metadata(request::graph_override(spec)?);
    let path = path!(spec.overrides.dgd.metadata);
    (!ignored.is_empty()).then(|| {
        stated(
            path.clone(),
            FIELD_IGNORED,
            message!["Ignored fields of ", path, format!(": {}.", ignored.join(", "))],
            "Remove these fields. The name, labels and annotations can be set; the graph is always created in the namespace \
             of the request.",
        )
    })
}

/// Profilers before 1.5 generate graphs of v1alpha1. Those of 1.4 merge overrides with our program, which translates
/// them.
fn early_override(spec: &DynamoGraphDeploymentRequestSpec) -> Option<FieldError> {
    let wanted = request::graph_override(spec)?;
    let beta = wanted.get("apiVersion")?.as_str()?.ends_with("/v1beta1") && wanted.contains_key("spec");
    let (image, version) = spec.image.as_deref().and_then(|image| Some((image, of_image(image)?))).filter(|_| beta)?;
    let path = path!(spec.overrides.dgd);
    let newer = message!["Name an image of Dynamo 1.5 or later in ", path!(spec.image)];
    if version < [1, 4, 0] {
        return Some(stated(
            path.clone(),
            "OverrideMisread",
            message![
                path,
                format!(
                    " is of nvidia.com/v1beta1, but the profiler in {image} reads every override as \
                     nvidia.com/v1alpha1."
                )
            ],
            newer.with(", or write the override in v1alpha1."),
        ));
    }
    let field = graph::merge::field_missing_in_alpha(wanted).filter(|_| version < [1, 5, 0])?;
    Some(FieldError::new(
        path,
        PROFILER_WILL_REFUSE,
        format!(
            "{field} is not a field of nvidia.com/v1alpha1, the version in which the profiler in {image} \
                 generates graphs."
        ),
        newer.with(", or remove the field."),
    ))
}
