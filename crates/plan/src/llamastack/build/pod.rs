//! The pod template of the Deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, ConfigMapVolumeSource, EmptyDirVolumeSource, KeyToPath, PersistentVolumeClaimVolumeSource,
    PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec, SecretVolumeSource,
    TopologySpreadConstraint, Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::{ca, container, matching};
use crate::llamastack::config::{CONFIG_DIR, CONFIG_VOLUME, TLS_PATH, mount};
use crate::llamastack::resolution::Setup;
use crate::llamastack::rules::AddedVolumes;
use crate::llamastack::snapshot::{ObservedObject, Snapshot};
use crate::llamastack::{fields, names, secret_change};

pub const STORAGE_VOLUME: &str = "lls-storage";
const TRUST_VOLUME: &str = "ca-bundle";
const TRUST_DIR: &str = "/etc/ssl/certs/ca-bundle";
pub const TRUST_FILE: &str = "/etc/ssl/certs/ca-bundle/ca-bundle.crt";
const CERTIFICATE_VOLUME: &str = "server-certificate";
/// The hashes restart the pods when content that they read at their start changes.
pub const CONFIG_HASH: &str = "configmap.hash/user-config";
pub const TRUST_HASH: &str = "configmap.hash/ca-bundle";
const FS_GROUP: i64 = 1001;
const HOST: &str = "kubernetes.io/hostname";
/// Pods of the previous template do not count, so that a single replica may return to the node that has its image.
const REVISION: &str = "pod-template-hash";
const SPREAD_OVER: [&str; 3] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", HOST];

pub fn template(snapshot: &Snapshot, setup: &Setup) -> PodTemplateSpec {
    let object = &snapshot.object;
    let hashes = [
        setup.config.as_ref().map(|config| (CONFIG_HASH.to_owned(), config.hash.clone())),
        setup.bundle.as_ref().map(|bundle| (TRUST_HASH.to_owned(), bundle.hash.clone())),
        secret_change::pod_annotation(snapshot).map(|versions| (secret_change::VERSIONS.to_owned(), versions)),
    ];
    let annotations: BTreeMap<_, _> = hashes.into_iter().flatten().collect();
    let metadata = ObjectMeta {
        labels: Some(names::selector(&object.name)),
        annotations: (!annotations.is_empty()).then_some(annotations),
        ..Default::default()
    };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(object, setup)) }
}

fn pod(object: &ObservedObject, setup: &Setup) -> PodSpec {
    let spec = &object.spec;
    let overrides = fields::overrides(spec);
    let spread = fields::spread_constraints(spec).map(|(_, given)| given.to_vec()).filter(|given| !given.is_empty());
    PodSpec {
        service_account_name: Some(fields::service_account(object)),
        security_context: Some(PodSecurityContext { fs_group: Some(FS_GROUP), ..Default::default() }),
        init_containers: Some(setup.pod.init_containers.clone()).filter(|containers| !containers.is_empty()),
        containers: vec![container::server(object, setup)],
        volumes: Some(volumes(object, setup)),
        // The constraints do not depend on the number of replicas, so that scaling does not restart running pods.
        topology_spread_constraints: spread.or_else(|| Some(spread_constraints(&object.name))),
        affinity: Some(anti_affinity(&object.name)),
        termination_grace_period_seconds: overrides.and_then(|pod| pod.termination_grace_period_seconds),
        ..Default::default()
    }
}

/// Names of the volumes that Steersman adds.
pub fn volume_names<'a>(spec: &LlamaStackDistributionSpec, added: &AddedVolumes<'a>) -> Vec<&'a str> {
    [
        Some(STORAGE_VOLUME),
        added.config.then_some(CONFIG_VOLUME),
        added.trust.then_some(TRUST_VOLUME),
        fields::certificate(spec).map(|_| CERTIFICATE_VOLUME),
    ]
    .into_iter()
    .flatten()
    .chain(added.pod.volumes.iter().map(|volume| volume.name.as_str()))
    .collect()
}

/// Paths in the server's container at which Steersman mounts volumes.
pub fn mount_paths<'a>(spec: &'a LlamaStackDistributionSpec, added: &AddedVolumes<'a>) -> Vec<&'a str> {
    [
        Some(fields::mount_path(spec)),
        added.config.then_some(CONFIG_DIR),
        added.trust.then_some(TRUST_DIR),
        fields::certificate(spec).map(|_| TLS_PATH),
    ]
    .into_iter()
    .flatten()
    .chain(added.pod.volume_mounts.iter().map(|mount| mount.mount_path.as_str()))
    .collect()
}

/// All volumes of the pod, the user's last.
fn volumes(object: &ObservedObject, setup: &Setup) -> Vec<Volume> {
    let spec = &object.spec;
    let volume = |name: &str| Volume { name: name.to_owned(), ..Default::default() };
    let storage = match fields::storage(spec) {
        Some(_) => Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: names::volume_claim(&object.name),
                ..Default::default()
            }),
            ..volume(STORAGE_VOLUME)
        },
        None => Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..volume(STORAGE_VOLUME) },
    };
    let config = setup.config.as_ref().map(|config| Volume {
        config_map: Some(ConfigMapVolumeSource { name: config.name.clone(), ..Default::default() }),
        ..volume(CONFIG_VOLUME)
    });
    let trust = setup.bundle.as_ref().map(|_| Volume {
        config_map: Some(ConfigMapVolumeSource {
            name: names::ca_bundle(&object.name),
            items: Some(vec![KeyToPath { key: ca::KEY.to_owned(), path: ca::KEY.to_owned(), mode: None }]),
            ..Default::default()
        }),
        ..volume(TRUST_VOLUME)
    });
    let certificate = fields::certificate(spec).map(|secret| Volume {
        secret: Some(SecretVolumeSource { secret_name: Some(secret.to_owned()), ..Default::default() }),
        ..volume(CERTIFICATE_VOLUME)
    });
    let needed = setup.pod.volumes.clone();
    let given = fields::overrides(spec).and_then(|overrides| overrides.volumes.clone()).unwrap_or_default();
    std::iter::once(storage).chain(config).chain(trust).chain(certificate).chain(needed).chain(given).collect()
}

/// All mounts of the server's container, the user's last.
pub fn volume_mounts(object: &ObservedObject, setup: &Setup) -> Vec<VolumeMount> {
    let spec = &object.spec;
    let storage = mount(STORAGE_VOLUME, fields::mount_path(spec), false);
    let config = setup.config.as_ref().map(|_| mount(CONFIG_VOLUME, CONFIG_DIR, true));
    let trust = setup.bundle.as_ref().map(|_| mount(TRUST_VOLUME, TRUST_DIR, true));
    let certificate = fields::certificate(spec).map(|_| mount(CERTIFICATE_VOLUME, TLS_PATH, true));
    let needed = setup.pod.volume_mounts.clone();
    let given = fields::overrides(spec).and_then(|overrides| overrides.volume_mounts.clone()).unwrap_or_default();
    std::iter::once(storage).chain(config).chain(trust).chain(certificate).chain(needed).chain(given).collect()
}

fn spread_constraints(object: &str) -> Vec<TopologySpreadConstraint> {
    SPREAD_OVER
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(matching(names::instance(object))),
            match_label_keys: Some(vec![REVISION.to_owned()]),
            ..Default::default()
        })
        .to_vec()
}

fn anti_affinity(object: &str) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(matching(names::instance(object))),
        topology_key: HOST.to_owned(),
        match_label_keys: Some(vec![REVISION.to_owned()]),
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
