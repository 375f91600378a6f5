//! The children of one object as they should be.
//! Comes in: what was seen and the image; goes out: the writes that make it so, in the order in which they are needed.

use std::collections::BTreeMap;
use steersman_api::meta::quantity::billionths;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, HTTPGetAction, PersistentVolumeClaim,
    PersistentVolumeClaimSpec, PersistentVolumeClaimVolumeSource, PodAffinityTerm, PodAntiAffinity, PodSecurityContext,
    PodSpec, PodTemplateSpec, Probe, ResourceRequirements, Service, ServiceAccount, ServicePort, ServiceSpec,
    TopologySpreadConstraint, Volume, VolumeMount, VolumeResourceRequirements, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_api::llamastack::v1alpha1::{ContainerSpec, LlamaStackDistributionSpec, Server, Storage};

use super::seen::{ObjectSeen, ReplicasOwner, Seen};
use super::{adoption, names};
use crate::{ADOPTED, Write};

type Amounts = BTreeMap<String, Quantity>;

/// The version that stays when the others are no longer served: the garbage collector must find the owner then, too.
const API_VERSION: &str = "llamastack.io/v1alpha2";
const CONTAINER: &str = "llama-stack";
const PORT: i32 = 8321;
const PORT_NAME: &str = "http";
const MOUNT_PATH: &str = "/.llama";
pub const STORAGE_VOLUME: &str = "lls-storage";
pub const STORAGE_SIZE: &str = "10Gi";
const MEMORY: &str = "1Gi";
const FS_GROUP: i64 = 1001;
const CONFIG_PATH: &str = "/etc/llama-stack/config.yaml";
const HOST: &str = "kubernetes.io/hostname";
const SPREAD_OVER: [&str; 3] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", HOST];

pub fn writes(seen: &Seen, image: &str) -> Vec<Write> {
    let object = &seen.object;
    let server = &object.spec.server;
    [
        server.storage.as_ref().map(|storage| Write::CreateOnce(volume_claim(object, storage))),
        Some(Write::Apply(child::<ServiceAccount>(object, names::service_account(&object.name), json!({})))),
        Some(Write::Apply(deployment(seen, image))),
        // After the Deployment, which may be refused: the address must not lead to a port that nobody listens on.
        wants_service(server).then(|| Write::Apply(service(object))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A container that says neither on which port nor with what environment it listens gets no Service.
pub fn wants_service(server: &Server) -> bool {
    server.container_spec.as_ref().is_some_and(|container| {
        container.port.is_some_and(|port| port != 0) || container.env.as_ref().is_some_and(|env| !env.is_empty())
    })
}

/// 0 counts as not given.
pub fn port(server: &Server) -> i32 {
    let given = server.container_spec.as_ref().and_then(|container| container.port);
    given.filter(|port| *port != 0).unwrap_or(PORT)
}

/// What the spec asks for, before any autoscaler.
pub fn wanted_replicas(spec: &LlamaStackDistributionSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

pub fn autoscaled(server: &Server) -> bool {
    server.autoscaling.as_ref().is_some_and(|autoscaling| autoscaling.max_replicas > 0)
}

/// None: somebody else decides; to write the field as well would be a war that pods pay for. Under an autoscaler of the
/// spec the live value is kept until that owns the field, because leaving it out as its sole owner would reset it to 1.
pub fn replicas(seen: &Seen) -> Option<i32> {
    let wanted = wanted_replicas(&seen.object.spec);
    match &seen.deployment {
        Some(live) => match live.replicas_owner {
            ReplicasOwner::Other(_) => None,
            ReplicasOwner::Ours if autoscaled(&seen.object.spec.server) => Some(live.replicas.unwrap_or(wanted)),
            ReplicasOwner::Ours => Some(wanted),
        },
        None => Some(wanted),
    }
}

pub fn mount_path(server: &Server) -> &str {
    let given = server.storage.as_ref().and_then(|storage| storage.mount_path.as_deref());
    given.filter(|path| !path.is_empty()).unwrap_or(MOUNT_PATH)
}

/// Names are unique, as server-side apply demands. What the user repeats counts where it stands last: there it may refer
/// to variables before it, just as it could while both were in the list.
pub fn env(server: &Server) -> Vec<EnvVar> {
    let ours = [
        ("HF_HOME", mount_path(server).to_owned()),
        ("LLS_WORKERS", workers(server).unwrap_or(1).to_string()),
        ("LLS_PORT", port(server).to_string()),
        ("LLAMA_STACK_CONFIG", CONFIG_PATH.to_owned()),
    ]
    .map(|(name, value)| EnvVar { name: name.to_owned(), value: Some(value), value_from: None });
    let all: Vec<&EnvVar> = ours.iter().chain(user_env(server)).collect();
    let repeated = |place: usize| all[place + 1..].iter().any(|later| later.name == all[place].name);
    (0..all.len()).filter(|place| !repeated(*place)).map(|place| all[place].clone()).collect()
}

pub fn user_env(server: &Server) -> &[EnvVar] {
    server.container_spec.as_ref().and_then(|container| container.env.as_deref()).unwrap_or_default()
}

/// All volumes of the pod, the user's last.
pub fn volumes(object: &ObjectSeen) -> Vec<Volume> {
    let server = &object.spec.server;
    let storage = match &server.storage {
        Some(_) => Volume {
            name: STORAGE_VOLUME.to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: names::volume_claim(&object.name),
                ..Default::default()
            }),
            ..Default::default()
        },
        None => Volume {
            name: STORAGE_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Default::default()
        },
    };
    let given = server.pod_overrides.as_ref().and_then(|pod| pod.volumes.clone());
    std::iter::once(storage).chain(given.unwrap_or_default()).collect()
}

/// All mounts of the container, the user's last.
pub fn volume_mounts(server: &Server) -> Vec<VolumeMount> {
    let storage = VolumeMount {
        name: STORAGE_VOLUME.to_owned(),
        mount_path: mount_path(server).to_owned(),
        ..Default::default()
    };
    let given = server.pod_overrides.as_ref().and_then(|pod| pod.volume_mounts.clone());
    std::iter::once(storage).chain(given.unwrap_or_default()).collect()
}

fn workers(server: &Server) -> Option<i32> {
    server.workers.filter(|workers| *workers > 0)
}

fn volume_claim(object: &ObjectSeen, storage: &Storage) -> DynamicObject {
    let size = storage.size.clone().unwrap_or_else(|| Quantity(STORAGE_SIZE.to_owned()));
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
        resources: Some(VolumeResourceRequirements {
            requests: Some([("storage".to_owned(), size)].into()),
            ..Default::default()
        }),
        ..Default::default()
    };
    child::<PersistentVolumeClaim>(object, names::volume_claim(&object.name), json!({ "spec": spec }))
}

fn service(object: &ObjectSeen) -> DynamicObject {
    let port = port(&object.spec.server);
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        selector: Some(names::selector(&object.name)),
        ports: Some(vec![ServicePort {
            name: Some(PORT_NAME.to_owned()),
            protocol: Some("TCP".to_owned()),
            port,
            target_port: Some(IntOrString::Int(port)),
            ..Default::default()
        }]),
        ..Default::default()
    };
    child::<Service>(object, names::service(&object.name), json!({ "spec": spec }))
}

fn deployment(seen: &Seen, image: &str) -> DynamicObject {
    let object = &seen.object;
    let spec = DeploymentSpec {
        replicas: replicas(seen),
        selector: LabelSelector { match_labels: Some(names::selector(&object.name)), ..Default::default() },
        strategy: Some(strategy(&object.spec.server)),
        template: template(object, image),
        ..Default::default()
    };
    let mut deployment = child::<Deployment>(object, names::deployment(&object.name), json!({ "spec": spec }));
    if let Some(kept) = adoption::kept(seen, image) {
        deployment.data["spec"]["template"] = kept.live.template.clone();
        deployment.metadata.labels.get_or_insert_default().insert(ADOPTED.to_owned(), kept.mark);
        // What is written builds on what was seen: a change in between must not be undone.
        deployment.metadata.resource_version.clone_from(&kept.live.resource_version);
    }
    deployment
}

pub fn template(object: &ObjectSeen, image: &str) -> PodTemplateSpec {
    let labels = Some(names::selector(&object.name));
    PodTemplateSpec { metadata: Some(ObjectMeta { labels, ..Default::default() }), spec: Some(pod(object, image)) }
}

/// A claim can be mounted on one node only, so the old pod has to go first. `rollingUpdate` is written out although it is
/// the default: only a field that we own vanishes on the change to Recreate, which is refused while it is there.
fn strategy(server: &Server) -> DeploymentStrategy {
    if server.storage.is_some() {
        return DeploymentStrategy { type_: Some("Recreate".to_owned()), rolling_update: None };
    }
    let quarter = || Some(IntOrString::String("25%".to_owned()));
    DeploymentStrategy {
        type_: Some("RollingUpdate".to_owned()),
        rolling_update: Some(RollingUpdateDeployment { max_surge: quarter(), max_unavailable: quarter() }),
    }
}

fn pod(object: &ObjectSeen, image: &str) -> PodSpec {
    let server = &object.spec.server;
    let overrides = server.pod_overrides.as_ref();
    let account = overrides.and_then(|pod| pod.service_account_name.clone()).filter(|name| !name.is_empty());
    let several = wanted_replicas(&object.spec) > 1;
    let spread = server.topology_spread_constraints.clone().filter(|given| !given.is_empty());
    PodSpec {
        service_account_name: Some(account.unwrap_or_else(|| names::service_account(&object.name))),
        security_context: Some(PodSecurityContext { fs_group: Some(FS_GROUP), ..Default::default() }),
        containers: vec![container(server, image)],
        volumes: Some(volumes(object)),
        topology_spread_constraints: spread.or_else(|| several.then(|| spread_constraints(&object.name))),
        affinity: several.then(|| apart(&object.name)),
        termination_grace_period_seconds: overrides.and_then(|pod| pod.termination_grace_period_seconds),
        ..Default::default()
    }
}

fn container(server: &Server, image: &str) -> Container {
    let given = server.container_spec.as_ref();
    let name = given.and_then(|container| container.name.clone()).filter(|name| !name.is_empty());
    let words = |of: fn(&ContainerSpec) -> &Option<Vec<String>>| {
        given.and_then(|container| of(container).clone()).filter(|words| !words.is_empty())
    };
    let port = port(server);
    Container {
        name: name.unwrap_or_else(|| CONTAINER.to_owned()),
        image: Some(image.to_owned()),
        command: words(|container| &container.command),
        args: words(|container| &container.args),
        ports: Some(vec![ContainerPort { container_port: port, ..Default::default() }]),
        env: Some(env(server)),
        resources: Some(resources(server)),
        volume_mounts: Some(volume_mounts(server)),
        startup_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/v1/health".to_owned()),
                port: IntOrString::Int(port),
                ..Default::default()
            }),
            initial_delay_seconds: Some(15),
            timeout_seconds: Some(30),
            failure_threshold: Some(3),
            success_threshold: Some(1),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// A request of zero counts as none. Limits are only added where the user sized the server by its workers.
fn resources(server: &Server) -> ResourceRequirements {
    let given = server.container_spec.as_ref().and_then(|container| container.resources.clone()).unwrap_or_default();
    let defaults = [
        ("cpu".to_owned(), Quantity(workers(server).unwrap_or(1).to_string())),
        ("memory".to_owned(), Quantity(MEMORY.to_owned())),
    ];
    let requests = completed(given.requests, &defaults);
    let sized = defaults.map(|(name, default)| (name.clone(), requests.get(&name).cloned().unwrap_or(default)));
    let limits = match workers(server) {
        Some(_) => Some(completed(given.limits, &sized)),
        None => given.limits,
    };
    ResourceRequirements { requests: Some(requests), limits, ..given }
}

/// What is given, with the defaults for what is absent or zero.
fn completed(given: Option<Amounts>, defaults: &[(String, Quantity)]) -> Amounts {
    let mut amounts = given.unwrap_or_default();
    for (name, default) in defaults {
        if amounts.get(name).is_none_or(|amount| billionths(&amount.0) == Some(0)) {
            amounts.insert(name.clone(), default.clone());
        }
    }
    amounts
}

fn spread_constraints(object: &str) -> Vec<TopologySpreadConstraint> {
    SPREAD_OVER
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(of_instance(object)),
            ..Default::default()
        })
        .to_vec()
}

fn apart(object: &str) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(of_instance(object)),
        topology_key: HOST.to_owned(),
        ..Default::default()
    };
    let preferred = vec![WeightedPodAffinityTerm { weight: 100, pod_affinity_term: term }];
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn of_instance(object: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(names::instance(object)), ..Default::default() }
}

fn child<K: k8s_openapi::Resource>(object: &ObjectSeen, name: String, data: Value) -> DynamicObject {
    let owner = OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: Family::Llsd.kind().to_owned(),
        name: object.name.clone(),
        uid: object.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    DynamicObject {
        types: Some(TypeMeta { api_version: K::API_VERSION.to_owned(), kind: K::KIND.to_owned() }),
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(object.namespace.clone()),
            labels: Some(names::labels()),
            owner_references: Some(vec![owner]),
            ..Default::default()
        },
        data,
    }
}
