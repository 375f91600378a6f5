//! Reads the snapshot of a LlamaStackDistribution.

pub mod operator_config;
mod pods;
pub mod references;
mod replicas;
mod routes;
pub mod server;
mod watches;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::json;
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_api::llamastack::v1alpha1;
use steersman_api::llamastack::v1alpha2::{ExposeForm, LlamaStackDistributionSpec};
use steersman_plan::llamastack::server::poll_target;
use steersman_plan::llamastack::validate::unread;
use steersman_plan::llamastack::{
    ANNOTATION_PREFIX, CONFIG_KEY, ObservedClaim, ObservedConfigMap, ObservedDeployment, ObservedIngress,
    ObservedObject, ObservedServer, RETAINED_CONFIG_MAPS, ReplicasOwner, Settings, Snapshot, V1alpha1Fields, config,
    labels_wanted, names,
};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::{ADOPTED_LABEL, DecodeError, NamespacedName, decode, path};
use steersman_runtime::apply::{Legacy, Live, Owner, controller, is_managed_by};
use steersman_runtime::controller::{Observed, ReconcileContext, ReconcileError};
use steersman_runtime::cpu_bound;
use steersman_runtime::resource::gvk_of;
use steersman_runtime::store::cache::Watched;

use crate::llamastack::oci::{Bases, ImageRequest};
use crate::resource::custom_resource;

pub use routes::{ROUTES, Routes, rules as route_rules};
pub use watches::SharedWatches;

pub const MANAGER: &str = "steersman/llamastack";

/// Label of the children, which the Go operator set as well.
const CHILDREN: &str = "app.kubernetes.io/managed-by=llama-stack-operator";

/// Objects are converted to this version to read the fields that the storage version keeps in an annotation.
const V1ALPHA1: &str = "v1alpha1";

pub fn children() -> Vec<Watched> {
    named("").map(|(kind, _)| Watched { kind, labels: CHILDREN, naming: None }).to_vec()
}

/// Children with a fixed name, one of each kind.
fn named(object: &str) -> [(GroupVersionKind, String); 10] {
    [
        (gvk_of::<Deployment>(), names::deployment(object)),
        (gvk_of::<Service>(), names::service(object)),
        (gvk_of::<PersistentVolumeClaim>(), names::volume_claim(object)),
        (gvk_of::<ServiceAccount>(), names::service_account(object)),
        (gvk_of::<ConfigMap>(), names::ca_bundle(object)),
        (gvk_of::<Ingress>(), names::ingress(object)),
        (gvk_of::<NetworkPolicy>(), names::network_policy(object)),
        (gvk_of::<HorizontalPodAutoscaler>(), names::autoscaler(object)),
        (gvk_of::<PodDisruptionBudget>(), names::disruption_budget(object)),
        (gvk_of::<RoleBinding>(), names::role_binding(object)),
    ]
}

pub async fn observe(
    context: &ReconcileContext,
    settings: &Settings,
    watches: &SharedWatches,
    object: &DynamicObject,
) -> Result<Observed<Snapshot>, ReconcileError> {
    let observed = cpu_bound::run(|| observe_object(object))?;
    let (name, namespace) = (observed.name.clone(), observed.namespace.clone());
    let legacy = Some(legacy_operator(&name));
    let owner = Owner { legacy, ..Owner::of(custom_resource(Family::Llsd).gvk(), object) };
    let mut live = context.cache.children(&context.server, &namespace, &owner.uid, &named(&name)).await?;
    // A claim that a user created in advance does not have the label of the watch.
    let claims = gvk_of::<PersistentVolumeClaim>();
    let wants_claim = object.data.pointer("/spec/workload/storage").is_some_and(|storage| !storage.is_null());
    if wants_claim && live.get(&claims, &names::volume_claim(&name)).is_none() {
        let api: Api<DynamicObject> =
            Api::namespaced_with(context.server.client.clone(), &namespace, &ApiResource::from_gvk(&claims));
        if let Some(claim) = context.server.call(api.get_opt(&names::volume_claim(&name))).await? {
            live.insert(&claims, claim);
        }
    }
    let config_maps = config_maps(&live, &owner.uid);
    // The ConfigMaps in use are needed only before a removal.
    let in_use = if config_maps.len() > RETAINED_CONFIG_MAPS {
        Some(references::in_use(&context.server, &observed).await?)
    } else {
        None
    };
    let settings = settings.under((*watches.config.current(&context.server).await?).clone());
    let lookup = watches.references.look_up(&context.server, &observed).await?;
    // A cluster does not become OpenShift later: one lookup is enough.
    let any_user = *watches.any_user.get_or_try_init(|| references::any_user(&context.server)).await?;
    let place = NamespacedName::new(namespace.clone(), name.clone());
    let exposed = observed.spec.networking.as_ref().and_then(|networking| networking.expose.as_ref());
    let exposed = exposed.is_some_and(ExposeForm::enabled);
    let route = watches.routes.observe(&context.server, &place, &owner.uid, exposed, &mut live).await?;
    let labels = observe_labels(watches.labels.as_ref(), &settings, &observed, &live);
    let mut deployment = None;
    if let Some(found) = live.get(&gvk_of::<Deployment>(), &names::deployment(&name)) {
        let decides = replicas::owner(&context.server, &observed, found).await?;
        deployment = observe_deployment(found, &name, decides);
    }
    let claim = live.get(&gvk_of::<PersistentVolumeClaim>(), &names::volume_claim(&name));
    let mut snapshot = Snapshot {
        now: Timestamp::now(),
        settings,
        object: observed,
        deployment,
        volume_claim: claim.and_then(|claim| observe_claim(claim, &owner.uid)),
        service: live.get(&gvk_of::<Service>(), &names::service(&name)).is_some(),
        ingress: live.get(&gvk_of::<Ingress>(), &names::ingress(&name)).map(observe_ingress),
        route,
        has_legacy_policy: live
            .get(&gvk_of::<NetworkPolicy>(), &names::network_policy(&name))
            .is_some_and(|policy| !is_managed_by(policy, MANAGER)),
        config_maps,
        in_use,
        references: lookup.references,
        secrets: lookup.secrets,
        trust: lookup.trust,
        followed: lookup.followed,
        labels,
        any_user,
        pods: watches.pods.observe(&place),
        oldest_start: watches.pods.oldest_start(&place),
        server: ObservedServer::Pending,
    };
    if let Some(servers) = &watches.servers {
        snapshot.server = servers.observe(&place, poll_target(&snapshot));
    }
    Ok(Observed { owner, snapshot, live })
}

/// Reads the labels of the image, if the plan needs them.
fn observe_labels(bases: Option<&Bases>, settings: &Settings, object: &ObservedObject, live: &Live) -> ObservedLabels {
    let Some(bases) = bases else { return ObservedLabels::NotRead };
    let Some(wanted) = labels_wanted(settings, object).filter(|_| !object.deleting) else {
        bases.forget(&object.namespace, &object.name);
        return ObservedLabels::NotRead;
    };
    // Pull secrets of the object's own account are read from the cache, so that a new one has effect at once.
    let account = live.get(&gvk_of::<ServiceAccount>(), &wanted.service_account);
    let secrets = account.and_then(|account| account.data["imagePullSecrets"].as_array()).into_iter().flatten();
    bases.observe(&ImageRequest {
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        image: wanted.image,
        service_account: wanted.service_account,
        pull_secrets: secrets.filter_map(|secret| secret["name"].as_str().map(ToOwned::to_owned)).collect(),
    })
}

pub fn observe_object(object: &DynamicObject) -> Result<ObservedObject, ReconcileError> {
    let unreadable = |unreadable| ReconcileError::invalid(&custom_resource(Family::Llsd), object, unreadable);
    let written = &object.data["spec"];
    let spec: LlamaStackDistributionSpec = decode(written, "spec").map_err(unreadable)?;
    let status = object.data.get("status").filter(|status| !status.is_null());
    let status = status.map(|status| decode(status, "status")).transpose().map_err(unreadable)?;
    let server = v1alpha1_server(object).map_err(unreadable)?;
    Ok(ObservedObject {
        name: object.name_any(),
        namespace: object.namespace().unwrap_or_default(),
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        deleting: object.metadata.deletion_timestamp.is_some(),
        written_in: written_in(object),
        unread: unread(written, &spec),
        spec,
        v1alpha1: V1alpha1Fields {
            server: json!(server),
            container_name: server.container_spec.and_then(|container| container.name),
            config_namespace: server
                .user_config
                .and_then(|config| config.config_map_namespace)
                .filter(|namespace| !namespace.is_empty()),
        },
        annotations: object
            .annotations()
            .iter()
            .filter(|(name, _)| name.starts_with(ANNOTATION_PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        provider_merge: object.annotations().get(config::ANNOTATION).cloned(),
        status,
    })
}

/// The API version of the last write to the spec that is not our own migration of the stored version.
fn written_in(object: &DynamicObject) -> String {
    let wrote_spec = |entry: &&ManagedFieldsEntry| {
        let ours = entry.manager.as_deref().is_some_and(|manager| manager.starts_with("steersman"));
        let spec = entry.fields_v1.as_ref().is_none_or(|fields| fields.0.get("f:spec").is_some());
        spec && !ours && entry.subresource.as_deref().is_none_or(str::is_empty)
    };
    let last = object.managed_fields().iter().filter(wrote_spec).max_by_key(|entry| entry.time.clone());
    let version = last.and_then(|entry| entry.api_version.as_deref()?.rsplit('/').next());
    version.unwrap_or_default().to_owned()
}

/// The `spec.server` of v1alpha1, with the fields that conversion keeps in an annotation.
fn v1alpha1_server(object: &DynamicObject) -> Result<v1alpha1::ServerSpec, DecodeError> {
    let strange = |cause: String| DecodeError { path: path!(spec), cause };
    let value = serde_json::to_value(object).map_err(|error| strange(error.to_string()))?;
    let converted = convert(value, &format!("{}/{V1ALPHA1}", Family::Llsd.group()));
    let converted = converted.map_err(|error| strange(error.to_string()))?.object;
    let spec: v1alpha1::LlamaStackDistributionSpec = decode(&converted["spec"], &format!("spec (as {V1ALPHA1})"))?;
    Ok(spec.server)
}

/// ConfigMaps with a configuration that was generated for the object.
fn config_maps(live: &Live, uid: &str) -> Vec<ObservedConfigMap> {
    let ours = |map: &&DynamicObject| {
        let generated = map.labels().get(names::COMPONENT).is_some_and(|value| value == names::GENERATED);
        generated && controller(*map).is_some_and(|reference| reference.uid == uid)
    };
    let text = |map: &DynamicObject| map.data["data"][CONFIG_KEY].as_str().unwrap_or_default().to_owned();
    live.of(&gvk_of::<ConfigMap>())
        .filter(ours)
        .map(|map| ObservedConfigMap {
            name: map.name_any(),
            config_yaml: text(map),
            created: map.creation_timestamp().map(|time| time.0),
        })
        .collect()
}

fn observe_ingress(object: &DynamicObject) -> ObservedIngress {
    let assigned = &object.data["status"]["loadBalancer"]["ingress"][0];
    let address = assigned["hostname"].as_str().or(assigned["ip"].as_str());
    ObservedIngress { address: address.map(ToOwned::to_owned) }
}

fn observe_deployment(
    object: &DynamicObject,
    owner: &str,
    replicas_owner: ReplicasOwner,
) -> Option<ObservedDeployment> {
    let typed: Deployment = serde_json::to_value(object).and_then(serde_json::from_value).ok()?;
    let status = typed.status.unwrap_or_default();
    let paused = typed.spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default().then(|| {
        let place = format!("{owner} -n {}", object.namespace().unwrap_or_default());
        format!(
            "the Deployment is paused, so changes do not reach its pods. To resume it: kubectl rollout resume \
             deployment {place}"
        )
    });
    let legacy = legacy_operator(owner);
    Some(ObservedDeployment {
        generation: typed.metadata.generation,
        observed_generation: status.observed_generation,
        replicas: typed.spec.and_then(|spec| spec.replicas),
        replicas_owner,
        ready: status.ready_replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        pods: status.replicas.unwrap_or_default(),
        trouble: paused.or_else(|| trouble(&status)),
        legacy: legacy.is_of(object) && !is_managed_by(object, MANAGER),
        adopted: object.labels().get(ADOPTED_LABEL).cloned(),
        template: object.data.pointer("/spec/template").cloned().unwrap_or_default(),
        resource_version: object.resource_version(),
    })
}

/// The Deployment's own report of a problem with its pods.
fn trouble(status: &DeploymentStatus) -> Option<String> {
    let reports_problem = |condition: &&DeploymentCondition| match condition.type_.as_str() {
        "Progressing" => condition.status == "False",
        "ReplicaFailure" => condition.status == "True",
        _ => false,
    };
    let found = status.conditions.iter().flatten().find(reports_problem)?;
    found.message.clone().or_else(|| found.reason.clone())
}

fn observe_claim(object: &DynamicObject, owner: &str) -> Option<ObservedClaim> {
    let typed: PersistentVolumeClaim = serde_json::to_value(object).and_then(serde_json::from_value).ok()?;
    let spec = typed.spec.unwrap_or_default();
    let shared = spec.access_modes.iter().flatten().any(|mode| mode == "ReadWriteMany");
    let requests = spec.resources.and_then(|resources| resources.requests);
    // A claim that is being deleted stays bound while pods use it, and is lost with its data when they stop.
    let leaving = object.metadata.deletion_timestamp.is_some().then(|| "Terminating".to_owned());
    Some(ObservedClaim {
        phase: leaving.or_else(|| typed.status.and_then(|status| status.phase)),
        size: requests.and_then(|requests| requests.get("storage").cloned()),
        owned: object.owner_references().iter().any(|reference| reference.uid == owner),
        shared,
    })
}

/// The Go operator's field managers: `manager`, the name of its binary, for updates, and the name of the object for applies.
fn legacy_operator(object: &str) -> Legacy {
    Legacy { managed_by: "llama-stack-operator".into(), managers: vec!["manager".into(), object.into()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_is_last_writer_of_spec() {
        let entry = |manager: &str, version: &str, minute: u32, fields: serde_json::Value| {
            json!({ "manager": manager, "operation": "Update", "apiVersion": format!("llamastack.io/{version}"),
                "time": format!("2026-01-01T00:{minute:02}:00Z"), "fieldsType": "FieldsV1", "fieldsV1": fields })
        };
        let spec = || json!({ "f:spec": { "f:server": {} } });
        let version_of = |entries: Vec<serde_json::Value>| {
            let object: DynamicObject =
                serde_json::from_value(json!({ "metadata": { "name": "a", "managedFields": entries } })).unwrap();
            written_in(&object)
        };
        let older = entry("kubectl", "v1alpha1", 1, spec());
        let label = entry("kubectl-label", "v1alpha2", 2, json!({ "f:metadata": {} }));
        let migration = entry("steersman/migration", "v1alpha2", 3, spec());
        let newer = entry("kubectl-edit", "v1alpha2", 4, spec());
        assert_eq!(version_of(vec![older.clone(), label, migration.clone()]), "v1alpha1");
        assert_eq!(version_of(vec![newer, older]), "v1alpha2");
        assert_eq!(version_of(vec![migration]), "");
        assert_eq!(version_of(vec![]), "");
    }
}
