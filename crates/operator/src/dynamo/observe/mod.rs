//! Reads the snapshot of a DynamoGraphDeploymentRequest.

mod graphs;
pub mod hardware;
mod pods;
mod role;
mod watches;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_plan::dynamo::request::{self, AlphaFields};
use steersman_plan::dynamo::{
    JobState, Needs, ObservedAccount, ObservedBinding, ObservedConfigMap, ObservedJob, ObservedObject, ObservedOutput,
    ObservedOwners, ObservedReferences, Settings, Snapshot, confirms_job, confirms_output, graph, names, needs,
};
use steersman_plan::pods::ObservedPod;
use steersman_reconcile::{NamespacedName, decode};
use steersman_runtime::apply::{Live, Owner, controller, is_managed_by};
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::controller::{Observed, ReconcileContext, ReconcileError};
use steersman_runtime::cpu_bound;
use steersman_runtime::resource::gvk_of;
use steersman_runtime::store::cache::{Naming, Watched};
use steersman_runtime::store::references::is_name;

use crate::installation::SecretAccess;
use crate::resource::custom_resource;

use graphs::GraphLookup;
pub use watches::RequestWatches;

pub use steersman_plan::dynamo::names::MANAGER;

/// Label of Jobs, outputs and ConfigMaps of graphs, which NVIDIA's operator sets as well.
const OF_REQUESTS: &str = "nvidia.com/managed-by=dynamo-operator";
const ACCOUNT: &str = "app.kubernetes.io/name=dgdr-profiling-job";

/// The kinds of children, except graphs, whose API may be absent.
pub fn children() -> Vec<Watched> {
    // Outputs of earlier profilers have no owner, and the owner of a graph's ConfigMaps is the graph.
    let naming = Some(Naming { label: names::LABEL_NAME, kind: Family::Dgdr.kind() });
    vec![
        Watched { kind: gvk_of::<Job>(), labels: OF_REQUESTS, naming: None },
        Watched { kind: gvk_of::<ConfigMap>(), labels: OF_REQUESTS, naming },
        Watched { kind: gvk_of::<ServiceAccount>(), labels: ACCOUNT, naming: None },
        Watched { kind: gvk_of::<RoleBinding>(), labels: ACCOUNT, naming: None },
    ]
}

pub fn has_job(context: &ReconcileContext, object: &DynamicObject) -> bool {
    let namespace = object.namespace().unwrap_or_default();
    context.cache.has(&gvk_of::<Job>(), &namespace, &names::profiling_job(&object.name_any()))
}

/// Children whose names are known in advance: fixed ones, and the ConfigMaps of the generated graph.
fn named_children(object: &ObservedObject) -> Vec<(GroupVersionKind, String)> {
    let known = [
        (gvk_of::<Job>(), names::profiling_job(&object.name)),
        (gvk_of::<ConfigMap>(), names::output(&object.name)),
        (gvk_of::<ServiceAccount>(), names::SERVICE_ACCOUNT.to_owned()),
        (gvk_of::<RoleBinding>(), names::ROLE_BINDING.to_owned()),
        (gvk_of::<RoleBinding>(), names::THOROUGH_BINDING.to_owned()),
    ];
    let additional = graph::additional_names(object).into_iter().map(|name| (gvk_of::<ConfigMap>(), name));
    known.into_iter().chain(additional).collect()
}

pub async fn observe(
    context: &ReconcileContext,
    settings: &Settings,
    watches: &RequestWatches,
    object: &DynamicObject,
) -> Result<Observed<Snapshot>, ReconcileError> {
    let server = &context.server;
    let observed = cpu_bound::run(|| observe_object(object))?;
    let (name, namespace) = (observed.name.clone(), observed.namespace.clone());
    let place = NamespacedName::new(namespace.clone(), name.clone());
    let owner = Owner::of(custom_resource(Family::Dgdr).gvk(), object);
    let named = cpu_bound::run(|| named_children(&observed));
    let mut live = context.cache.children(&context.server, &namespace, &owner.uid, &named).await?;
    let (job_name, output_name) = (names::profiling_job(&name), names::output(&name));
    if live.get(&gvk_of::<Job>(), &job_name).is_none() && confirms_job(&observed) {
        fetch(server, &observed, &gvk_of::<Job>(), &job_name, &mut live).await?;
    }
    let job = live.get(&gvk_of::<Job>(), &job_name).map(observed_job);
    let mut output = live.get(&gvk_of::<ConfigMap>(), &output_name).map(observed_output);
    if confirms_output(&observed, job.as_ref(), output.as_ref()) {
        fetch(server, &observed, &gvk_of::<ConfigMap>(), &output_name, &mut live).await?;
        output = live.get(&gvk_of::<ConfigMap>(), &output_name).map(observed_output);
    }
    let needs = cpu_bound::run(|| needs(&observed, job.as_ref(), output.as_ref()));
    // References are registered before they are read: a change in the meantime then causes the next reconcile.
    let references = observe_references(server, watches, &observed, &place, &needs).await?;
    let graph_place = needs.graph.clone().map(|graph| NamespacedName::new(namespace.clone(), graph));
    let found = match &graph_place {
        Some(graph_place) => watches.graphs.find(server, graph_place, &place).await?,
        None => GraphLookup::Absent,
    };
    let (graph, graphs_served) = match found {
        GraphLookup::Graph(graph) => (Some(graph), true),
        GraphLookup::Absent => (None, true),
        GraphLookup::Unserved => (None, false),
    };
    let graph_pods = match (&graph, &graph_place) {
        (Some(_), Some(graph_place)) if needs.graph_pods => watches.graph_pods.get(server, graph_place).await?,
        _ => Vec::new(),
    };
    let job_pods = match &job {
        Some(job) if needs.job_pods => job_pods(server, watches, &place, job).await?,
        _ => Vec::new(),
    };
    let mut settings = settings.clone();
    if needs.cluster_role
        && let Some(role) = &settings.profiling_cluster_role
    {
        settings.profiling_cluster_role_found = watches.role.exists(server, role).await?;
        if let Some(role) = settings.thorough_cluster_role.as_ref().filter(|_| request::is_thorough(&observed.spec)) {
            settings.thorough_cluster_role_found = watches.role.exists(server, role).await?;
        }
    }
    let shared = [
        (gvk_of::<ServiceAccount>(), names::SERVICE_ACCOUNT),
        (gvk_of::<RoleBinding>(), names::ROLE_BINDING),
        (gvk_of::<RoleBinding>(), names::THOROUGH_BINDING),
    ];
    // Those of others have no label, so that no watch covers them.
    for (kind, name) in shared.into_iter().filter(|_| needs.account) {
        if live.get(&kind, name).is_none() && (name != names::THOROUGH_BINDING || request::is_thorough(&observed.spec))
        {
            fetch(server, &observed, &kind, name, &mut live).await?;
        }
    }
    let hardware = if needs.hardware {
        watches.hardware.get(server, &place).await?
    } else {
        watches.hardware.forget(&place);
        ObservedHardware::awaited()
    };
    let additional = additional(server, &observed, needs.additional, &mut live).await?;
    let snapshot = Snapshot {
        now: Timestamp::now(),
        settings,
        output,
        account: live.get(&gvk_of::<ServiceAccount>(), names::SERVICE_ACCOUNT).map(observed_account),
        binding: live.get(&gvk_of::<RoleBinding>(), names::ROLE_BINDING).and_then(observed_binding),
        thorough_binding: live.get(&gvk_of::<RoleBinding>(), names::THOROUGH_BINDING).and_then(observed_binding),
        job,
        job_pods,
        graph,
        graphs_served,
        graph_pods,
        additional,
        references,
        hardware,
        object: observed,
    };
    Ok(Observed { owner, snapshot, live })
}

/// The ConfigMaps that were generated with a graph. Users may change them, and one without its labels is not in the cache, so
/// that it is read from the API server.
async fn additional(
    server: &Server,
    object: &ObservedObject,
    names: Vec<String>,
    live: &mut Live,
) -> Result<Vec<ObservedConfigMap>, CallError> {
    let kind = gvk_of::<ConfigMap>();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| is_name(name)) {
        if live.get(&kind, &name).is_none() {
            fetch(server, object, &kind, &name, live).await?;
        }
        found.extend(live.get(&kind, &name).map(|map| ObservedConfigMap {
            name,
            resource_version: map.resource_version(),
            created: map.creation_timestamp().map(|time| time.0),
            request: map.annotations().get(names::REQUEST_UID).cloned(),
            content: graph::content(&map.data),
        }));
    }
    Ok(found)
}

/// Reads an object that is not in the cache from the API server.
async fn fetch(
    server: &Server,
    object: &ObservedObject,
    kind: &GroupVersionKind,
    name: &str,
    live: &mut Live,
) -> Result<(), CallError> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(server.client.clone(), &object.namespace, &ApiResource::from_gvk(kind));
    if let Some(found) = server.call(api.get_opt(name)).await? {
        live.insert(kind, found);
    }
    Ok(())
}

pub fn observe_object(object: &DynamicObject) -> Result<ObservedObject, ReconcileError> {
    let unreadable = |unreadable| ReconcileError::invalid(&custom_resource(Family::Dgdr), object, unreadable);
    let status = object.data.get("status").filter(|status| !status.is_null());
    let status = status.map(|status| decode(status, "status")).transpose();
    let spec = decode(&object.data["spec"], "spec");
    let deleting = object.metadata.deletion_timestamp.is_some();
    // A request that is being deleted need not decode: otherwise an earlier operator's finalizer would block it for ever.
    let (spec, status) = if deleting {
        (spec.or_else(|_| decode(&json!({ "model": "" }), "spec")), status.or(Ok(None)))
    } else {
        (spec, status)
    };
    Ok(ObservedObject {
        name: object.name_any(),
        namespace: object.namespace().unwrap_or_default(),
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        created: object.creation_timestamp().map(|time| time.0),
        deleting,
        finalizers: object.finalizers().to_vec(),
        annotations: object.annotations().clone(),
        spec: spec.map_err(unreadable)?,
        status: status.map_err(unreadable)?,
    })
}

fn observed_job(object: &DynamicObject) -> ObservedJob {
    let conditions: Vec<JobCondition> =
        serde_json::from_value(object.data["status"]["conditions"].clone()).unwrap_or_default();
    let true_condition =
        |type_: &str| conditions.iter().find(|condition| condition.type_ == type_ && condition.status == "True");
    let ended = true_condition("Complete").or_else(|| true_condition("Failed"));
    let state = match (true_condition("Complete"), true_condition("Failed")) {
        (Some(_), _) => JobState::Complete,
        (None, Some(failed)) => {
            let message = failed.message.clone().or_else(|| failed.reason.clone());
            JobState::Failed(message.unwrap_or_default())
        }
        (None, None) if object.data["spec"]["suspend"] == Value::Bool(true) => JobState::Suspended,
        (None, None) => JobState::Running,
    };
    ObservedJob {
        uid: object.uid().unwrap_or_default(),
        owner: controller(object).map(|reference| reference.uid.clone()),
        accepted_spec: object.annotations().get(names::ACCEPTED_SPEC).cloned(),
        retry: object.annotations().get(names::RETRY).cloned(),
        state,
        ended: ended.and_then(|condition| condition.last_transition_time.as_ref()).map(|time| time.0),
        unlabelled: object.labels().get(names::LABEL_MANAGED_BY).map(String::as_str) != Some(names::MANAGED_BY),
        failure: true_condition("Failed").and_then(|failed| failed.reason.clone()),
    }
}

/// The pods of a Job. The end of a profiler is reported once, so that after a failure a stale cache is bypassed.
async fn job_pods(
    server: &Server,
    watches: &RequestWatches,
    place: &NamespacedName,
    job: &ObservedJob,
) -> Result<Vec<ObservedPod>, CallError> {
    let of = NamespacedName::new(&place.namespace, names::profiling_job(&place.name));
    // The pods of an earlier operator's Job do not have the label of the watch.
    if job.accepted_spec.is_none() {
        return watches.job_pods.fetch(server, &of).await;
    }
    let known = watches.job_pods.get(server, &of).await?;
    let failed = matches!(job.state, JobState::Failed(_));
    if failed && !known.iter().any(|pod| pod.phase == "Failed") {
        return watches.job_pods.fetch(server, &of).await;
    }
    Ok(known)
}

fn observed_output(object: &DynamicObject) -> ObservedOutput {
    ObservedOutput {
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version(),
        owner: controller(object).map(|reference| reference.uid.clone()),
        data: serde_json::from_value(object.data["data"].clone()).unwrap_or_default(),
    }
}

fn observed_binding(object: &DynamicObject) -> Option<ObservedBinding> {
    let cluster_role = object.data["roleRef"]["name"].as_str()?.to_owned();
    let subjects = object.data["subjects"].as_array().into_iter().flatten();
    let binds_account = subjects.into_iter().any(|subject| {
        let namespace = subject["namespace"].as_str().map(str::to_owned);
        subject["kind"] == "ServiceAccount"
            && subject["name"] == names::SERVICE_ACCOUNT
            && namespace.is_none_or(|namespace| Some(namespace) == object.namespace())
    });
    let foreign = is_foreign(object) && binds_account;
    Some(ObservedBinding { uid: object.uid()?, cluster_role, foreign, owners: observed_owners(object) })
}

/// Whether neither Steersman nor NVIDIA's operator created an object that requests share.
fn is_foreign(object: &DynamicObject) -> bool {
    let labelled = names::account_labels().iter().all(|(key, value)| object.labels().get(key) == Some(value));
    !labelled && !is_managed_by(object, MANAGER)
}

fn observed_account(object: &DynamicObject) -> ObservedAccount {
    ObservedAccount { foreign: is_foreign(object), owners: observed_owners(object) }
}

fn observed_owners(object: &DynamicObject) -> ObservedOwners {
    let references = object.owner_references().iter().map(|reference| json!(reference)).collect();
    ObservedOwners { resource_version: object.resource_version(), references }
}

async fn observe_references(
    server: &Server,
    watches: &RequestWatches,
    object: &ObservedObject,
    place: &NamespacedName,
    needs: &Needs,
) -> Result<ObservedReferences, CallError> {
    let here = |name: &str| NamespacedName::new(object.namespace.clone(), name);
    let AlphaFields { config_map, output_claim, .. } = request::alpha_fields(object);
    let token = here(names::TOKEN_SECRET);
    let config_map = config_map.filter(|(name, _)| is_name(name));
    watches.config_maps.refer(place, config_map.iter().map(|(name, _)| here(name)).collect());
    let mut references = ObservedReferences::default();
    if watches.secret_access != SecretAccess::None {
        watches.secrets.refer(place, [token.clone()].into());
        let found = watches.secrets.get(server, &token).await?;
        references.token_secret = Some(found.content.is_some());
        references.token_unwatched = !found.followed;
    }
    if let Some((name, key)) = config_map {
        let found = watches.config_maps.get(server, &here(&name)).await?.content;
        references.config_map = Some(found.is_some_and(|content| content.data.contains_key(&key)));
    }
    if !needs.claims {
        return Ok(references);
    }
    if let Some(claim) = request::model_cache(&object.spec) {
        references.model_cache = Some(has_claim(server, &object.namespace, claim).await?);
    }
    if let Some(claim) = &output_claim {
        references.output_claim = Some(has_claim(server, &object.namespace, claim).await?);
    }
    Ok(references)
}

async fn has_claim(server: &Server, namespace: &str, name: &str) -> Result<bool, CallError> {
    // An invalid name might be the path of another object.
    if !is_name(name) {
        return Ok(false);
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(server.client.clone(), namespace);
    Ok(server.call(claims.get_metadata_opt(name)).await?.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn observed(status: &Value, suspend: bool) -> ObservedJob {
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "profile-a" },
            "spec": { "suspend": suspend }, "status": status });
        observed_job(&serde_json::from_value(job).unwrap())
    }

    fn condition(type_: &str, status: &str, reason: &str) -> Value {
        json!({ "type": type_, "status": status, "reason": reason, "message": format!("because of {reason}"),
            "lastTransitionTime": "2026-11-16T06:01:00Z" })
    }

    #[test]
    fn ended_job_has_its_time_and_reason() {
        let end = Some("2026-11-16T06:01:00Z".parse().unwrap());
        let failed = |reason: &str| (JobState::Failed(format!("because of {reason}")), end, Some(reason.to_owned()));
        for (conditions, (state, ended, failure)) in [
            (json!([condition("Complete", "True", "Completed")]), (JobState::Complete, end, None)),
            (
                json!([
                    condition("SuccessCriteriaMet", "True", "Completed"),
                    condition("Complete", "True", "Completed")
                ]),
                (JobState::Complete, end, None),
            ),
            (json!([condition("Failed", "True", "BackoffLimitExceeded")]), failed("BackoffLimitExceeded")),
            (json!([condition("Failed", "True", "DeadlineExceeded")]), failed("DeadlineExceeded")),
            // The end is announced, and the pods still run.
            (json!([condition("FailureTarget", "True", "DeadlineExceeded")]), (JobState::Running, None, None)),
            (json!([condition("Complete", "False", "Completed")]), (JobState::Running, None, None)),
            (json!([]), (JobState::Running, None, None)),
        ] {
            let job = observed(&json!({ "conditions": conditions }), false);
            assert_eq!((job.state, job.ended, job.failure), (state, ended, failure), "{conditions}");
        }
        assert_eq!(observed(&json!({}), false).state, JobState::Running);
        assert_eq!(observed(&json!({}), true).state, JobState::Suspended);
    }
}
