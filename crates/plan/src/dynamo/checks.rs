//! Checks a request: errors in the spec, which only its author can correct, missing objects, which are awaited, and
//! remarks.

use steersman_api::Family;
use steersman_api::dynamo::v1beta1::{Phase, ReportedProblem};
use steersman_reconcile::{FieldError, FieldNames, Finding, Severity};

use super::graph::merge::ComponentNames;
use super::request::{self, Acceptance, AlphaFields};
use super::snapshot::{ObservedObject, Snapshot};
use super::validate::{remarks, rules};
use super::{graph, hardware, names, reported};
use crate::yaml::Limit;

/// Why profiling cannot begin.
#[derive(Clone, Debug, PartialEq)]
pub struct Obstacle {
    pub finding: Finding,
    /// Code and object, for `status.reported`.
    pub problem: ReportedProblem,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checks {
    /// Errors in the spec.
    pub errors: Vec<Obstacle>,
    /// Missing in the cluster or the operator's settings; awaited.
    pub missing: Vec<Obstacle>,
}

/// The checks before profiling. Once profiling has begun, the spec is fixed.
pub fn before_profiling(snapshot: &Snapshot) -> Checks {
    let spec = &snapshot.object.spec;
    let default = snapshot.settings.default_image.as_deref();
    let errors = [
        rules::long_name(&snapshot.object.name),
        rules::thorough_auto(spec),
        rules::no_image(spec, default),
        rules::unknown_sku(spec),
        rules::graph_override(spec, default),
        rules::graph_name(spec),
        rules::long_spec(spec, default),
    ];
    let generation = snapshot.object.generation;
    let errors = errors.into_iter().flatten().map(|error| Obstacle {
        finding: stored(&error, Severity::Blocker),
        problem: ReportedProblem {
            reason: error.cause.reason().to_owned(),
            field: Some(error.path.to_string()),
            generation,
            ..ReportedProblem::default()
        },
    });
    // Another generation of the spec may need the same claim or GPU, so the problem is reported again.
    let of_generation = |obstacle: Obstacle| Obstacle {
        problem: ReportedProblem { generation, ..obstacle.problem },
        finding: obstacle.finding,
    };
    let alpha = request::alpha_fields(&snapshot.object);
    let missing = [
        model_cache(snapshot),
        output_claim(snapshot, &alpha),
        config_map(snapshot, &alpha),
        operator_image(snapshot),
        cluster_role(snapshot),
        graph_name_taken(snapshot),
        undiscovered(snapshot),
    ];
    Checks { errors: errors.collect(), missing: missing.into_iter().flatten().map(of_generation).collect() }
}

/// Remarks of every phase, for the condition `SpecAccepted`.
pub fn remarks(snapshot: &Snapshot) -> Vec<Finding> {
    let default = snapshot.settings.default_image.as_deref();
    // Admission refuses a missing version. A stored request without one is acted on, because profiling does not need
    // it.
    let version = rules::no_version(&snapshot.object.spec, default).map(|error| stored(&error, Severity::Warning));
    let mut found: Vec<Finding> = [changed(snapshot), version].into_iter().flatten().collect();
    found.extend(remarks::remarks(&snapshot.object).iter().map(|remark| stored(remark, Severity::Warning)));
    found.extend(unknown_components(&snapshot.object));
    found.extend(large_annotations(&snapshot.object));
    found.extend(early_retry(&snapshot.object));
    found.extend(no_token(snapshot));
    // The sort is stable: within one severity the order of the rules stays.
    found.sort_by_key(|finding| finding.severity);
    found
}

/// A retry that was asked for too early takes effect later, which its user may not expect.
fn early_retry(object: &ObservedObject) -> Option<Finding> {
    request::phase(object).filter(|phase| super::phase::is_fixed(*phase))?;
    let wanted = request::retry(object).filter(|wanted| Some(wanted.as_str()) != request::last_retry(object))?;
    Some(Finding::warning(
        "RetryPending",
        format!("The annotation {} has the new value {wanted:?}, but this request has not failed.", names::RETRY),
        format!(
            "The request starts again when it fails or when its graph is deleted. Remove the annotation to prevent that. \
             To profile again now, delete Job {}.",
            names::profiling_job(&object.name)
        ),
    ))
}

/// Renders the paths of the stored version, as conditions have them.
fn stored(error: &FieldError, severity: Severity) -> Finding {
    error.finding(severity).render(&FieldNames::default())
}

fn missing_obstacle(problem: ReportedProblem, message: String, remedy: &str) -> Obstacle {
    Obstacle { finding: Finding::blocker("ValidationFailed", message, remedy), problem }
}

/// The reason is the code of the problem; the text may count nodes, which change.
fn undiscovered(snapshot: &Snapshot) -> Option<Obstacle> {
    let requested = request::hardware(&snapshot.object);
    let finding = hardware::complete(requested.as_ref(), &snapshot.hardware).err()?;
    let problem = ReportedProblem { reason: finding.reason.to_owned(), ..ReportedProblem::default() };
    Some(Obstacle { finding, problem })
}

fn model_cache(snapshot: &Snapshot) -> Option<Obstacle> {
    let name = request::model_cache(&snapshot.object.spec)?;
    (snapshot.references.model_cache == Some(false)).then(|| {
        missing_obstacle(
            reported::about("ModelCacheNotFound", "PersistentVolumeClaim", name),
            format!("model cache PVC {name} not found in namespace {}", snapshot.object.namespace),
            "Create the PersistentVolumeClaim, or correct spec.modelCache.pvcName.",
        )
    })
}

fn output_claim(snapshot: &Snapshot, alpha: &AlphaFields) -> Option<Obstacle> {
    let name = alpha.output_claim.as_ref()?;
    (snapshot.references.output_claim == Some(false)).then(|| {
        missing_obstacle(
            reported::about("OutputClaimNotFound", "PersistentVolumeClaim", name),
            format!("output PVC {name} not found in namespace {}", snapshot.object.namespace),
            "Create the PersistentVolumeClaim, or remove the annotation nvidia.com/dgdr-output-pvc \
             (spec.profilingConfig.outputPVC in v1alpha1).",
        )
    })
}

fn config_map(snapshot: &Snapshot, alpha: &AlphaFields) -> Option<Obstacle> {
    let (name, key) = alpha.config_map.as_ref()?;
    (snapshot.references.config_map == Some(false)).then(|| {
        missing_obstacle(
            reported::about("ConfigMapNotFound", "ConfigMap", name),
            format!("ConfigMap {name} with key {key} not found in namespace {}", snapshot.object.namespace),
            "Create the ConfigMap with this key, or remove the annotation nvidia.com/dgdr-config-map-ref \
             (spec.profilingConfig.configMapRef in v1alpha1).",
        )
    })
}

fn operator_image(snapshot: &Snapshot) -> Option<Obstacle> {
    let message = if request::graph_override(&snapshot.object.spec).is_some() {
        "operator image must be configured when a DGD override is present"
    } else {
        "operator image must be configured: the sidecar of the profiling Job runs it"
    };
    snapshot.settings.operator_image.is_empty().then(|| {
        let problem = ReportedProblem { reason: "OperatorImageMissing".to_owned(), ..ReportedProblem::default() };
        missing_obstacle(problem, message.to_owned(), "Start the operator with --operator-image.")
    })
}

fn cluster_role(snapshot: &Snapshot) -> Option<Obstacle> {
    let settings = &snapshot.settings;
    let thorough = settings.thorough_cluster_role.as_ref().filter(|_| request::is_thorough(&snapshot.object.spec));
    let role = settings.profiling_cluster_role.as_ref()?;
    let missing = (!settings.profiling_cluster_role_found).then_some(role);
    let missing = missing.or_else(|| thorough.filter(|_| !settings.thorough_cluster_role_found));
    missing.map(|role| {
        missing_obstacle(
            reported::about("ClusterRoleNotFound", "ClusterRole", role),
            format!("cluster role {role:?} does not exist: ensure it is created by Helm before deploying components"),
            "Create the cluster role; deploy/rbac.yaml contains the default one. Profiling starts once the \
             cluster role exists.",
        )
    })
}

/// A graph of another owner is never adopted, and one of an earlier attempt never changed, so that profiling would be in
/// vain.
fn graph_name_taken(snapshot: &Snapshot) -> Option<Obstacle> {
    let object = &snapshot.object;
    let graph = snapshot.graph.as_ref().filter(|_| request::auto_apply(object))?;
    Some(missing_obstacle(
        reported::about("DeploymentNameTaken", Family::Dgd.kind(), &graph.name),
        graph::claim(object, graph).refusal(&graph.name),
        "Delete it, or set another name in spec.overrides.dgd.metadata.name; profiling then starts.",
    ))
}

fn changed(snapshot: &Snapshot) -> Option<Finding> {
    let object = &snapshot.object;
    if request::phase(object) == Some(Phase::Failed) {
        let began = request::has_job(object) && super::phase::has_changed_since_failure(object);
        return began.then(|| {
            Finding::blocker(
                super::phase::SPEC_CHANGE_IGNORED,
                "The spec was changed after this request failed, and the change has no effect.",
                format!("To profile with the changed spec: {}", request::retry_command(object)),
            )
        });
    }
    let phase = request::phase(object).filter(|phase| super::phase::is_fixed(*phase))?;
    (request::acceptance(&snapshot.object) == Acceptance::Changed).then(|| {
        Finding::blocker(
            "SpecChangeRejected",
            format!(
                "Cannot modify spec in phase '{phase:?}'. DynamoGraphDeploymentRequest is immutable once profiling \
                 starts. Create a new resource with a different name instead."
            ),
            "This request continues with the spec that profiling started with. To clear this message, change the spec \
             back.",
        )
    })
}

/// The profiler chooses the components of a graph, so that only the result shows which overrides had no effect.
fn unknown_components(object: &ObservedObject) -> Option<Finding> {
    let wanted = request::graph_override(&object.spec)?;
    let generated = object.status.as_ref()?.profiling_results.as_ref()?.selected_config.as_ref()?;
    let ComponentNames { unknown, existing } = graph::merge::component_names(wanted, generated);
    (!unknown.is_empty()).then(|| {
        Finding::warning(
            "FieldIgnored",
            format!(
                "spec.overrides.dgd changes {}, which the generated graph does not have. Its components are {}.",
                unknown.join(", "),
                existing.join(", ")
            ),
            "Change the graph itself, or create a request whose override names these components.",
        )
    })
}

/// Annotations that are not used because they exceed the limits of tenants' YAML.
fn large_annotations(object: &ObservedObject) -> impl Iterator<Item = Finding> {
    let finding = |(annotation, limit, effect): (&str, Option<Limit>, &str)| {
        limit.map(|limit| {
            Finding::warning(
                "AnnotationTooLarge",
                format!("Annotation {annotation} has {limit}, so that {effect}."),
                format!("Shorten metadata.annotations[{annotation}], or remove it."),
            )
        })
    };
    let all = [
        (names::ADDITIONAL, graph::additional_limit(object), "none of its ConfigMaps is written"),
        (names::GENERATED_GRAPH, graph::manifest_limit(object), "no graph is created from it"),
    ];
    all.into_iter().filter_map(finding)
}

/// The Job starts without the Secret, and can download only models that need no token. The profiler's graphs load it
/// always.
fn no_token(snapshot: &Snapshot) -> Option<Finding> {
    (snapshot.references.token_secret == Some(false)).then(|| {
        Finding::info(
            "TokenSecretMissing",
            format!("There is no Secret {} in namespace {}.", names::TOKEN_SECRET, snapshot.object.namespace),
            format!(
                "Create the Secret with key {}: the pods of generated graphs do not start without it, and some models cannot be \
                 downloaded without a token.",
                names::TOKEN_KEY
            ),
        )
    })
}
