//! Properties that hold for every object in every state of the cluster.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::names::{labels, selector};
use steersman_plan::llamastack::validate::{Reference, ReferenceKind};
use steersman_plan::llamastack::{
    ObservedClaim, ObservedConfigMap, ObservedDeployment, ObservedReference, ObservedServer, ObservedTrust,
    ReplicasOwner, Snapshot, mounted_config_maps, plan, referred,
};
use steersman_reconcile::{Failure, ObjectId, Outcome, Severity, Write, WriteOp};

use super::labels::any_labels;
use super::route::any_route;
use super::trust::{CA_KEY, CERTIFICATE};
use super::{now, planned_object, snapshot_from_v1alpha1, snapshot_from_v1alpha2, stored_status};

/// Part of every environment value. Only the Deployment may contain it.
const SECRET: &str = "hush";

fn optional(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(0.4, value)
}

/// A JSON object of the fields that have a value.
fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn one_of(items: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(items)
}

fn env_lists() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["A", "B", "HF_HOME", "LLS_PORT", "LLS_WORKERS", "LLAMA_STACK_CONFIG", ""]);
    prop::collection::vec((name, ".{0,3}"), 0..7).prop_map(|variables| {
        variables.into_iter().map(|(name, value)| json!({"name": name, "value": format!("{SECRET}{value}")})).collect()
    })
}

fn quantities() -> impl Strategy<Value = Value> {
    one_of(["0", "1", "500m", "1Gi", "10Gi", "-1", "odd", ""].map(|text| json!(text)).to_vec())
}

fn containers() -> impl Strategy<Value = Value> {
    let resources = (optional(quantities()), optional(quantities()), optional(quantities())).prop_map(|(cpu, memory, limit)| {
        json!({"requests": object(vec![("cpu", cpu), ("memory", memory)]), "limits": object(vec![("cpu", limit)])})
    });
    let port = one_of([0, 80, -1, 65_536].map(|port| json!(port)).to_vec());
    let commands = one_of(vec![json!([]), json!(["run"])]);
    (
        optional(one_of(vec![json!(""), json!("x")])),
        optional(port),
        optional(resources),
        optional(env_lists()),
        optional(commands),
    )
        .prop_map(|(name, port, resources, env, command)| {
            object(vec![
                ("name", name),
                ("port", port),
                ("resources", resources),
                ("env", env),
                ("command", command.clone()),
                ("args", command),
            ])
        })
}

fn servers() -> impl Strategy<Value = Value> {
    let distribution = one_of(vec![
        json!({"name": "starter"}),
        json!({"name": "starter"}),
        json!({"image": "x"}),
        json!({"name": "nobody"}),
        json!({}),
        json!({"name": "starter", "image": "x"}),
    ]);
    let storage = (optional(quantities()), optional(one_of(vec![json!(""), json!("/x")])))
        .prop_map(|(size, path)| object(vec![("size", size), ("mountPath", path)]));
    let pod = one_of(vec![
        json!({}),
        json!({"serviceAccountName": "", "terminationGracePeriodSeconds": 0}),
        json!({"volumes": [{"name": "a"}], "volumeMounts": [{"name": "a", "mountPath": "/x"}]}),
        json!({"volumes": [{"name": "lls-storage"}]}),
    ]);
    let rare = one_of(vec![
        json!({"userConfig": {"configMapName": ""}}),
        json!({"userConfig": {"configMapName": "c"}}),
        json!({"tlsConfig": {"caBundle": {"configMapName": "c"}}}),
        json!({"podDisruptionBudget": {}}),
        json!({"autoscaling": {"maxReplicas": 0}}),
        json!({"autoscaling": {"maxReplicas": 5}}),
        json!({"topologySpreadConstraints": []}),
    ]);
    let workers = any::<i32>().prop_map(|workers| json!(workers));
    (distribution, optional(containers()), optional(storage), optional(pod), optional(workers), optional(rare))
        .prop_map(|(distribution, container, storage, pod, workers, rare)| {
            let mut server = object(vec![
                ("distribution", Some(distribution)),
                ("containerSpec", container),
                ("storage", storage),
                ("podOverrides", pod),
                ("workers", workers),
            ]);
            for (name, value) in rare.iter().filter_map(Value::as_object).flatten() {
                server[name] = value.clone();
            }
            server
        })
}

fn v1alpha1_specs() -> impl Strategy<Value = Value> {
    let replicas = (-1..4).prop_map(|replicas| json!(replicas));
    let network = one_of(vec![json!({}), json!({"exposeRoute": true}), json!({"allowedFrom": {}})]);
    (optional(replicas), servers(), optional(network)).prop_map(|(replicas, server, network)| {
        object(vec![("replicas", replicas), ("server", Some(server)), ("network", network)])
    })
}

fn deployments() -> impl Strategy<Value = ObservedDeployment> {
    let owner = prop_oneof![Just(ReplicasOwner::Ours), Just(ReplicasOwner::Other("hpa".into()))];
    let generation = || prop::option::of(0..3i64);
    let adoption = (
        any::<bool>(),
        prop::option::of("[0-9a-f]{16}"),
        optional(Just(json!({"spec": {"old": true, "volumes": [{"configMap": {"name": "starter-config-0"}}]}}))),
    );
    (generation(), generation(), prop::option::of(0..4), owner, 0..4, 0..4, adoption).prop_map(
        |(generation, observed_generation, replicas, replicas_owner, ready, updated, (legacy, adopted, template))| {
            ObservedDeployment {
                generation,
                observed_generation,
                replicas,
                replicas_owner,
                ready,
                updated,
                pods: ready.max(updated),
                trouble: None,
                legacy,
                adopted,
                template: template.unwrap_or_default(),
                resource_version: None,
            }
        },
    )
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let name = prop_oneof![9 => Just("starter".to_owned()), 1 => "[a-z.]{40,60}", 1 => ".{0,9}"];
    let claim = (prop::option::of("[A-Z][a-z]{3}"), prop::option::of("[0-9]{1,3}(Gi|Mi)?"))
        .prop_map(|(phase, size)| ObservedClaim { phase, size: size.map(Quantity), ..ObservedClaim::default() });
    let server = prop_oneof![
        Just(ObservedServer::Pending),
        ".{0,9}".prop_map(ObservedServer::Failed),
        ".{0,9}".prop_map(ObservedServer::Unhealthy),
        (prop::option::of("[0-9]"), any::<bool>())
            .prop_map(|(version, open)| ObservedServer::Answered { version, providers: open.then(Vec::new) }),
    ];
    let server_and_pods = (server, prop::option::of(prop::collection::vec(super::pod_problem::any_pod(), 0..3)));
    let children =
        (prop::option::of(deployments()), prop::option::of(claim), any::<bool>(), any::<bool>(), server_and_pods);
    let cluster = (config_maps(), prop::bool::weighted(0.7), trusts(), (any_labels(), any_route()));
    let object = prop_oneof![
        v1alpha1_specs().prop_map(snapshot_from_v1alpha1),
        v1alpha2_specs().prop_map(snapshot_from_v1alpha2)
    ];
    (object, name, prop::option::of(1..3i64), prop::bool::weighted(0.1), children, cluster).prop_map(
        |(mut snapshot, name, generation, deleting, children, (config_maps, found, certificates, labels_and_route))| {
            (snapshot.object.name, snapshot.object.generation, snapshot.object.deleting) = (name, generation, deleting);
            (
                snapshot.deployment,
                snapshot.volume_claim,
                snapshot.service,
                snapshot.any_user,
                (snapshot.server, snapshot.pods),
            ) = children;
            (snapshot.config_maps, snapshot.in_use) = config_maps;
            (snapshot.labels, snapshot.route) = labels_and_route;
            if found {
                snapshot.references = referred(&snapshot.object).iter().map(observed_reference).collect();
                snapshot.trust = certificates;
            }
            snapshot
        },
    )
}

/// The referenced object with all its keys; only ConfigMaps have content.
fn observed_reference(reference: &Reference) -> ObservedReference {
    let content = reference.keys.iter().map(|key| (key.clone(), "version: 2".to_owned())).collect();
    ObservedReference {
        secret: reference.named.kind == ReferenceKind::Secret,
        namespace: reference.named.namespace.clone(),
        name: reference.named.name.clone(),
        keys: Some(reference.keys.iter().cloned().collect()),
        content: (reference.named.kind == ReferenceKind::ConfigMap).then_some(content),
    }
}

fn config_maps() -> impl Strategy<Value = (Vec<ObservedConfigMap>, Option<BTreeSet<String>>)> {
    let names = prop::collection::btree_set("starter-config-[0-9a-f]", 0..5);
    (names, prop::option::of(prop::collection::btree_set("starter-config-[0-9a-f]", 0..3))).prop_map(
        |(names, in_use)| {
            let maps = names.into_iter().map(|name| ObservedConfigMap {
                config_yaml: name.clone(),
                name,
                created: Some(now()),
            });
            (maps.collect(), in_use)
        },
    )
}

fn trusts() -> impl Strategy<Value = ObservedTrust> {
    let texts = vec![CERTIFICATE.to_owned(), "nothing".to_owned(), String::new()];
    let map =
        || prop::option::of(prop::sample::select(texts.clone()).prop_map(|text| [(CA_KEY.to_owned(), text)].into()));
    (map(), map()).prop_map(|(named, cluster)| ObservedTrust { named, cluster })
}

/// Specs of v1alpha2, with fields that v1alpha1 does not have.
fn v1alpha2_specs() -> impl Strategy<Value = Value> {
    let distribution = one_of(vec![
        json!({"name": "starter"}),
        json!({"name": "starter"}),
        json!({"name": "postgres-demo"}),
        json!({"name": "nobody"}),
        json!({"image": "x"}),
    ]);
    let key = json!({"name": "s", "key": "k"});
    let providers = one_of(vec![
        json!({"inference": {"provider": "vllm", "endpoint": "http://v", "apiKey": {"secretKeyRef": key}}}),
        json!({"inference": [{"id": "a", "provider": "vllm", "apiKey": key}, {"id": "b", "provider": "openai"}]}),
        json!({"inference": [{"provider": "vllm"}, {"provider": "vllm"}]}),
    ]);
    let resources = one_of(vec![json!({"models": ["m"]}), json!({"models": [{"name": "m", "provider": "none"}]})]);
    let storage = one_of(vec![
        json!({"kv": {"type": "redis", "endpoint": "redis://r:1", "password": key}}),
        json!({"sql": {"type": "postgres", "connectionString": key}}),
    ]);
    let networking = one_of(vec![
        json!({"port": 9000}),
        json!({"tls": {"enabled": true, "secretName": "t"}, "expose": true}),
        json!({"tls": {"enabled": true}}),
        json!({"tls": {"caBundle": {"configMapName": "c"}}}),
        json!({"expose": {"hostname": "h"}, "allowedFrom": {"namespaces": ["a", "*"]}}),
    ]);
    let workload = one_of(vec![
        json!({"replicas": 3, "workers": 2}),
        json!({"autoscaling": {"maxReplicas": 3}, "podDisruptionBudget": {"minAvailable": 1}}),
        json!({"overrides": {"volumes": [{"name": "user-config"}], "command": ["x"]}}),
    ]);
    let rare = one_of(vec![
        json!({"overrideConfig": {"configMapName": "mine"}}),
        json!({"disabled": ["eval"]}),
        json!({"externalProviders": {"inference": [{"providerId": "x", "image": "i"}]}}),
    ]);
    let parts = (
        optional(providers),
        optional(resources),
        optional(storage),
        optional(networking),
        optional(workload),
        optional(rare),
    );
    (distribution, parts).prop_map(|(distribution, (providers, resources, storage, networking, workload, rare))| {
        let mut spec = object(vec![
            ("distribution", Some(distribution)),
            ("providers", providers),
            ("resources", resources),
            ("storage", storage),
            ("networking", networking),
            ("workload", workload),
        ]);
        for (name, value) in rare.iter().filter_map(Value::as_object).flatten() {
            spec[name] = value.clone();
        }
        spec
    })
}

/// Snapshots without a Deployment of an earlier operator.
fn snapshots_without_adoption() -> impl Strategy<Value = Snapshot> {
    snapshots().prop_map(|mut snapshot| {
        if let Some(live) = &mut snapshot.deployment {
            (live.legacy, live.adopted) = (false, None);
        }
        snapshot
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let failure = any::<bool>().prop_map(|transient| Failure {
        object: ObjectId::new("Service", "team-a", "x"),
        message: "y".into(),
        transient,
        conflict: false,
    });
    (0..3usize, prop::option::of(failure)).prop_map(|(written, failure)| Outcome { written, failure })
}

proptest! {
    #[test]
    fn plan_and_status_are_deterministic(snapshot in snapshots(), outcome in outcomes()) {
        let first = plan(&snapshot);
        prop_assert_eq!(&first, &plan(&snapshot.clone()));
        prop_assert!(first.findings.is_sorted_by_key(|finding| finding.severity));
        let status = llamastack::status(&snapshot, &first, &outcome);
        prop_assert!(status.phase.is_some());
        prop_assert_eq!(status, llamastack::status(&snapshot.clone(), &first, &outcome));
    }

    #[test]
    fn plan_writes_unless_blocked_or_deleting(snapshot in snapshots()) {
        let plan = plan(&snapshot);
        let blocked = plan.findings.iter().any(|finding| finding.severity == Severity::Blocker);
        prop_assert_eq!(plan.writes.is_empty(), blocked || snapshot.object.deleting);
        // The ServiceAccount is the only write while image labels are awaited.
        let only_account = plan.writes.len() == 1;
        prop_assert_eq!(plan.prune.is_empty(), blocked || snapshot.object.deleting || only_account);
    }

    #[test]
    fn children_are_owned_labelled_and_in_namespace(snapshot in snapshots()) {
        let plan = plan(&snapshot);
        let mut keys = BTreeSet::new();
        for write in &plan.writes {
            let object = write.object().unwrap();
            let kind = object.types.as_ref().unwrap().kind.clone();
            prop_assert_eq!(object.metadata.namespace.as_ref(), Some(&snapshot.object.namespace));
            let found = object.metadata.labels.as_ref().unwrap();
            prop_assert!(labels().iter().all(|(key, value)| found.get(key) == Some(value)));
            let [owner] = object.metadata.owner_references.as_deref().unwrap() else { panic!("one owner") };
            prop_assert_eq!((&owner.uid, &owner.name), (&snapshot.object.uid, &snapshot.object.name));
            prop_assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
            let exists = snapshot.config_maps.iter().any(|map| Some(&map.name) == object.metadata.name.as_ref());
            let create_once = matches!(write, WriteOp::Owned(Write::CreateOnce(_)));
            // Existing ConfigMaps are retained by CreateOnce.
            prop_assert!(create_once == (kind == "PersistentVolumeClaim") || (kind == "ConfigMap" && exists), "{}", kind);
            prop_assert!(keys.insert((kind, object.metadata.name.clone())));
        }
        prop_assert!(plan.prune.iter().all(|kind| kind.kind != "PersistentVolumeClaim"));
    }

    #[test]
    fn planned_deployment_is_valid_for_apply(snapshot in snapshots_without_adoption()) {
        let Some(deployment) = planned_object(&plan(&snapshot), "Deployment") else { return Ok(()) };
        let spec = serde_json::from_value::<Deployment>(deployment.clone()).unwrap().spec.unwrap();
        let pod = spec.template.spec.unwrap();
        let container = &pod.containers[0];
        let unique = |names: Vec<&String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
        prop_assert!(unique(container.env.iter().flatten().map(|env| &env.name).collect()));
        prop_assert!(unique(pod.volumes.iter().flatten().map(|volume| &volume.name).collect()));
        prop_assert!(unique(container.volume_mounts.iter().flatten().map(|mount| &mount.mount_path).collect()));
        prop_assert_eq!(spec.selector.match_labels, Some(selector(&snapshot.object.name)));
        prop_assert_eq!(spec.template.metadata.unwrap().labels, Some(selector(&snapshot.object.name)));
        prop_assert!(unique(pod.init_containers.iter().flatten().map(|container| &container.name).collect()));
        let mounts = container.volume_mounts.iter().flatten().chain(
            pod.init_containers.iter().flatten().flat_map(|container| container.volume_mounts.iter().flatten()),
        );
        let volumes: BTreeSet<&String> = pod.volumes.iter().flatten().map(|volume| &volume.name).collect();
        for mount in mounts.filter(|mount| mount.name != "a") {
            prop_assert!(volumes.contains(&mount.name), "{}", mount.name);
        }
        let strategy = spec.strategy.unwrap();
        prop_assert_eq!(strategy.rolling_update.is_some(), strategy.type_.as_deref() == Some("RollingUpdate"));
        prop_assert_eq!(strategy.rolling_update.is_none(), snapshot.object.spec.workload.is_some_and(|workload| workload.storage.is_some()));
    }

    #[test]
    fn user_env_reaches_pod_with_last_value(snapshot in snapshots_without_adoption()) {
        let Some(deployment) = planned_object(&plan(&snapshot), "Deployment") else { return Ok(()) };
        let found = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let overrides = snapshot.object.spec.workload.and_then(|workload| workload.overrides);
        let user_env = overrides.and_then(|overrides| overrides.env).unwrap_or_default();
        for variable in &user_env {
            let last = user_env.iter().rfind(|other| other.name == variable.name).unwrap();
            prop_assert!(found.contains(&json!(last)));
        }
    }

    #[test]
    fn unchanged_snapshot_keeps_status_without_events(snapshot in snapshots()) {
        let first = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
        let mut later = snapshot;
        later.object.status = Some(stored_status(&first));
        later.now += SignedDuration::from_hours(1);
        let next_plan = plan(&later);
        prop_assert_eq!(llamastack::status(&later, &next_plan, &Outcome::default()), stored_status(&first));
        prop_assert_eq!(next_plan.events, []);
    }

    /// Law 10: changed message texts do not affect decisions about objects that store the old texts.
    #[test]
    fn stored_messages_change_no_decision(snapshot in snapshots(), outcome in outcomes()) {
        let mut stored = stored_status(&llamastack::status(&snapshot, &plan(&snapshot), &outcome));
        let mut snapshot = snapshot;
        // Texts decide only if a status has no codes.
        stored.findings.get_or_insert_default();
        snapshot.object.status = Some(stored.clone());
        let mut reworded = snapshot.clone();
        for condition in stored.conditions.iter_mut().flatten() {
            condition.message = "another text".into();
        }
        reworded.object.status = Some(stored);
        prop_assert_eq!(plan(&snapshot), plan(&reworded));
        let codes = |snapshot: &Snapshot| {
            let status = llamastack::status(snapshot, &plan(snapshot), &outcome);
            let conditions = status.conditions.into_iter().flatten();
            let conditions: Vec<_> = conditions.map(|known| (known.type_, known.status, known.reason)).collect();
            (status.phase, status.findings, status.pod_problem, status.config_generation, conditions)
        };
        prop_assert_eq!(codes(&snapshot), codes(&reworded));
    }

    /// Old pods may restart at any time during a rollout.
    #[test]
    fn config_maps_in_use_are_never_pruned(snapshot in snapshots()) {
        let plan = plan(&snapshot);
        let is_kept = |name: &str| {
            let pruned = plan.prune.iter().any(|kind| kind.kind == "ConfigMap");
            !pruned || plan.writes.iter().any(|write| write.object().unwrap().metadata.name.as_deref() == Some(name))
        };
        let live = snapshot.deployment.as_ref().map(|live| mounted_config_maps(&live.template)).unwrap_or_default();
        let in_use = snapshot.in_use.clone().unwrap_or_default();
        for map in &snapshot.config_maps {
            if live.contains(&map.name) || in_use.contains(&map.name) || snapshot.in_use.is_none() {
                prop_assert!(is_kept(&map.name), "{}", map.name);
            }
        }
    }

    #[test]
    fn environment_values_are_never_reported(snapshot in snapshots(), outcome in outcomes()) {
        let plan = plan(&snapshot);
        let reported = format!("{:?}{:?}{}", plan.findings, plan.events, json!(llamastack::status(&snapshot, &plan, &outcome)));
        prop_assert!(!reported.contains(SECRET), "{}", reported);
    }
}
