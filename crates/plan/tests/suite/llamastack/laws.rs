//! What holds for every object, however odd.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::names::{labels, selector};
use steersman_plan::llamastack::validate::{Kind, Reference};
use steersman_plan::llamastack::{
    ObservedClaim, ObservedConfigMap, ObservedDeployment, ObservedReference, ObservedServer, ObservedTrust,
    ReplicasOwner, Snapshot, mounted_config_maps, plan, referred,
};
use steersman_reconcile::{Failure, ObjectId, Outcome, Severity, Write, WriteOp};

use super::labels::any_labels;
use super::route::any_route;
use super::trust::{CA_KEY, CERTIFICATE};
use super::{now, of_v1alpha1, of_v1alpha2, stored, written};

/// Stands in every value of the environment, and may come up nowhere but in the Deployment.
const SECRET: &str = "hush";

fn maybe(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop::option::weighted(0.4, value)
}

/// An object of those fields that are there.
fn object(fields: Vec<(&'static str, Option<Value>)>) -> Value {
    fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn of(items: Vec<Value>) -> impl Strategy<Value = Value> {
    prop::sample::select(items)
}

fn env() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["A", "B", "HF_HOME", "LLS_PORT", "LLS_WORKERS", "LLAMA_STACK_CONFIG", ""]);
    prop::collection::vec((name, ".{0,3}"), 0..7).prop_map(|variables| {
        variables.into_iter().map(|(name, value)| json!({"name": name, "value": format!("{SECRET}{value}")})).collect()
    })
}

fn quantity() -> impl Strategy<Value = Value> {
    of(["0", "1", "500m", "1Gi", "10Gi", "-1", "odd", ""].map(|text| json!(text)).to_vec())
}

fn container() -> impl Strategy<Value = Value> {
    let resources = (maybe(quantity()), maybe(quantity()), maybe(quantity())).prop_map(|(cpu, memory, limit)| {
        json!({"requests": object(vec![("cpu", cpu), ("memory", memory)]), "limits": object(vec![("cpu", limit)])})
    });
    let port = of([0, 80, -1, 65_536].map(|port| json!(port)).to_vec());
    let words = of(vec![json!([]), json!(["run"])]);
    (maybe(of(vec![json!(""), json!("x")])), maybe(port), maybe(resources), maybe(env()), maybe(words)).prop_map(
        |(name, port, resources, env, command)| {
            object(vec![
                ("name", name),
                ("port", port),
                ("resources", resources),
                ("env", env),
                ("command", command.clone()),
                ("args", command),
            ])
        },
    )
}

fn server() -> impl Strategy<Value = Value> {
    let distribution = of(vec![
        json!({"name": "starter"}),
        json!({"name": "starter"}),
        json!({"image": "x"}),
        json!({"name": "nobody"}),
        json!({}),
        json!({"name": "starter", "image": "x"}),
    ]);
    let storage = (maybe(quantity()), maybe(of(vec![json!(""), json!("/x")])))
        .prop_map(|(size, path)| object(vec![("size", size), ("mountPath", path)]));
    let pod = of(vec![
        json!({}),
        json!({"serviceAccountName": "", "terminationGracePeriodSeconds": 0}),
        json!({"volumes": [{"name": "a"}], "volumeMounts": [{"name": "a", "mountPath": "/x"}]}),
        json!({"volumes": [{"name": "lls-storage"}]}),
    ]);
    let rare = of(vec![
        json!({"userConfig": {"configMapName": ""}}),
        json!({"userConfig": {"configMapName": "c"}}),
        json!({"tlsConfig": {"caBundle": {"configMapName": "c"}}}),
        json!({"podDisruptionBudget": {}}),
        json!({"autoscaling": {"maxReplicas": 0}}),
        json!({"autoscaling": {"maxReplicas": 5}}),
        json!({"topologySpreadConstraints": []}),
    ]);
    let workers = any::<i32>().prop_map(|workers| json!(workers));
    (distribution, maybe(container()), maybe(storage), maybe(pod), maybe(workers), maybe(rare)).prop_map(
        |(distribution, container, storage, pod, workers, rare)| {
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
        },
    )
}

fn spec() -> impl Strategy<Value = Value> {
    let replicas = (-1..4).prop_map(|replicas| json!(replicas));
    let network = of(vec![json!({}), json!({"exposeRoute": true}), json!({"allowedFrom": {}})]);
    (maybe(replicas), server(), maybe(network)).prop_map(|(replicas, server, network)| {
        object(vec![("replicas", replicas), ("server", Some(server)), ("network", network)])
    })
}

fn deployment() -> impl Strategy<Value = ObservedDeployment> {
    let owner = prop_oneof![Just(ReplicasOwner::Ours), Just(ReplicasOwner::Other("hpa".into()))];
    let generation = || prop::option::of(0..3i64);
    let taken_over = (
        any::<bool>(),
        prop::option::of("[0-9a-f]{16}"),
        maybe(Just(json!({"spec": {"old": true, "volumes": [{"configMap": {"name": "starter-config-0"}}]}}))),
    );
    (generation(), generation(), prop::option::of(0..4), owner, 0..4, 0..4, taken_over).prop_map(
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

fn seen() -> impl Strategy<Value = Snapshot> {
    let name = prop_oneof![9 => Just("starter".to_owned()), 1 => "[a-z.]{40,60}", 1 => ".{0,9}"];
    let claim = (prop::option::of("[A-Z][a-z]{3}"), prop::option::of("[0-9]{1,3}(Gi|Mi)?"))
        .prop_map(|(phase, size)| ObservedClaim { phase, size: size.map(Quantity) });
    let server = prop_oneof![
        Just(ObservedServer::Awaited),
        ".{0,9}".prop_map(ObservedServer::Silent),
        (prop::option::of("[0-9]"), any::<bool>())
            .prop_map(|(version, open)| ObservedServer::Answered { version, providers: open.then(Vec::new) }),
    ];
    let told = (server, prop::option::of(prop::collection::vec(super::pod_problem::pod(), 0..3)));
    let taken = (prop::option::of(deployment()), prop::option::of(claim), any::<bool>(), any::<bool>(), told);
    let around = (config_maps(), prop::bool::weighted(0.7), certificates(), (any_labels(), any_route()));
    let what = prop_oneof![spec().prop_map(of_v1alpha1), newer().prop_map(of_v1alpha2)];
    (what, name, prop::option::of(1..3i64), prop::bool::weighted(0.1), taken, around).prop_map(
        |(mut seen, name, generation, deleting, taken, (config_maps, found, certificates, beside))| {
            (seen.object.name, seen.object.generation, seen.object.deleting) = (name, generation, deleting);
            (seen.deployment, seen.volume_claim, seen.service, seen.any_user, (seen.server, seen.pods)) = taken;
            (seen.config_maps, seen.in_use) = config_maps;
            (seen.labels, seen.route) = beside;
            if found {
                seen.references = referred(&seen.object).iter().map(there).collect();
                seen.trust = certificates;
            }
            seen
        },
    )
}

/// What a reference leads to, with a value that must not come up anywhere where it is a Secret's.
fn there(reference: &Reference) -> ObservedReference {
    let content = reference.keys.iter().map(|key| (key.clone(), "version: 2".to_owned())).collect();
    ObservedReference {
        secret: reference.named.kind == Kind::Secret,
        namespace: reference.named.namespace.clone(),
        name: reference.named.name.clone(),
        keys: Some(reference.keys.iter().cloned().collect()),
        content: (reference.named.kind == Kind::ConfigMap).then_some(content),
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

fn certificates() -> impl Strategy<Value = ObservedTrust> {
    let texts = vec![CERTIFICATE.to_owned(), "nothing".to_owned(), String::new()];
    let map =
        || prop::option::of(prop::sample::select(texts.clone()).prop_map(|text| [(CA_KEY.to_owned(), text)].into()));
    (map(), map()).prop_map(|(named, cluster)| ObservedTrust { named, cluster })
}

/// Specs of v1alpha2, with much that v1alpha1 has no word for.
fn newer() -> impl Strategy<Value = Value> {
    let distribution = of(vec![
        json!({"name": "starter"}),
        json!({"name": "starter"}),
        json!({"name": "postgres-demo"}),
        json!({"name": "nobody"}),
        json!({"image": "x"}),
    ]);
    let key = json!({"name": "s", "key": "k"});
    let providers = of(vec![
        json!({"inference": {"provider": "vllm", "endpoint": "http://v", "apiKey": {"secretKeyRef": key}}}),
        json!({"inference": [{"id": "a", "provider": "vllm", "apiKey": key}, {"id": "b", "provider": "openai"}]}),
        json!({"inference": [{"provider": "vllm"}, {"provider": "vllm"}]}),
    ]);
    let resources = of(vec![json!({"models": ["m"]}), json!({"models": [{"name": "m", "provider": "none"}]})]);
    let storage = of(vec![
        json!({"kv": {"type": "redis", "endpoint": "redis://r:1", "password": key}}),
        json!({"sql": {"type": "postgres", "connectionString": key}}),
    ]);
    let networking = of(vec![
        json!({"port": 9000}),
        json!({"tls": {"enabled": true, "secretName": "t"}, "expose": true}),
        json!({"tls": {"enabled": true}}),
        json!({"tls": {"caBundle": {"configMapName": "c"}}}),
        json!({"expose": {"hostname": "h"}, "allowedFrom": {"namespaces": ["a", "*"]}}),
    ]);
    let workload = of(vec![
        json!({"replicas": 3, "workers": 2}),
        json!({"autoscaling": {"maxReplicas": 3}, "podDisruptionBudget": {"minAvailable": 1}}),
        json!({"overrides": {"volumes": [{"name": "user-config"}], "command": ["x"]}}),
    ]);
    let rare = of(vec![
        json!({"overrideConfig": {"configMapName": "mine"}}),
        json!({"disabled": ["eval"]}),
        json!({"externalProviders": {"inference": [{"providerId": "x", "image": "i"}]}}),
    ]);
    let parts = (maybe(providers), maybe(resources), maybe(storage), maybe(networking), maybe(workload), maybe(rare));
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

/// Nothing in it is an earlier operator's.
fn of_our_own() -> impl Strategy<Value = Snapshot> {
    seen().prop_map(|mut seen| {
        if let Some(live) = &mut seen.deployment {
            (live.legacy, live.adopted) = (false, None);
        }
        seen
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
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
    fn every_object_gets_one_answer_and_always_the_same(seen in seen(), outcome in outcome()) {
        let first = plan(&seen);
        prop_assert_eq!(&first, &plan(&seen.clone()));
        prop_assert!(first.findings.is_sorted_by_key(|finding| finding.severity));
        let status = llamastack::status(&seen, &first, &outcome);
        prop_assert!(status.phase.is_some());
        prop_assert_eq!(status, llamastack::status(&seen.clone(), &first, &outcome));
    }

    #[test]
    fn nothing_is_done_while_something_blocks_and_something_otherwise(seen in seen()) {
        let plan = plan(&seen);
        let blocked = plan.findings.iter().any(|finding| finding.severity == Severity::Blocker);
        prop_assert_eq!(plan.writes.is_empty(), blocked || seen.object.deleting);
        // While the labels of an image are awaited, there is nothing but the account.
        let waits = plan.writes.len() == 1;
        prop_assert_eq!(plan.prune.is_empty(), blocked || seen.object.deleting || waits);
    }

    #[test]
    fn every_child_is_ours_labelled_and_where_the_object_is(seen in seen()) {
        let plan = plan(&seen);
        let mut keys = BTreeSet::new();
        for write in &plan.writes {
            let object = write.object().unwrap();
            let kind = object.types.as_ref().unwrap().kind.clone();
            prop_assert_eq!(object.metadata.namespace.as_ref(), Some(&seen.object.namespace));
            let found = object.metadata.labels.as_ref().unwrap();
            prop_assert!(labels().iter().all(|(key, value)| found.get(key) == Some(value)));
            let [owner] = object.metadata.owner_references.as_deref().unwrap() else { panic!("one owner") };
            prop_assert_eq!((&owner.uid, &owner.name), (&seen.object.uid, &seen.object.name));
            prop_assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
            let left = seen.config_maps.iter().any(|map| Some(&map.name) == object.metadata.name.as_ref());
            let once = matches!(write, WriteOp::Owned(Write::CreateOnce(_)));
            // Of configurations, those that are there already are only kept.
            prop_assert!(once == (kind == "PersistentVolumeClaim") || (kind == "ConfigMap" && left), "{}", kind);
            prop_assert!(keys.insert((kind, object.metadata.name.clone())));
        }
        prop_assert!(plan.prune.iter().all(|kind| kind.kind != "PersistentVolumeClaim"));
    }

    #[test]
    fn every_deployment_is_one_that_apply_accepts(seen in of_our_own()) {
        let Some(deployment) = written(&plan(&seen), "Deployment") else { return Ok(()) };
        let spec = serde_json::from_value::<Deployment>(deployment.clone()).unwrap().spec.unwrap();
        let pod = spec.template.spec.unwrap();
        let container = &pod.containers[0];
        let unique = |names: Vec<&String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
        prop_assert!(unique(container.env.iter().flatten().map(|env| &env.name).collect()));
        prop_assert!(unique(pod.volumes.iter().flatten().map(|volume| &volume.name).collect()));
        prop_assert!(unique(container.volume_mounts.iter().flatten().map(|mount| &mount.mount_path).collect()));
        prop_assert_eq!(spec.selector.match_labels, Some(selector(&seen.object.name)));
        prop_assert_eq!(spec.template.metadata.unwrap().labels, Some(selector(&seen.object.name)));
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
        prop_assert_eq!(strategy.rolling_update.is_none(), seen.object.spec.workload.is_some_and(|workload| workload.storage.is_some()));
    }

    #[test]
    fn every_env_of_the_user_reaches_the_pod_with_its_last_value(seen in of_our_own()) {
        let Some(deployment) = written(&plan(&seen), "Deployment") else { return Ok(()) };
        let found = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let given = seen.object.spec.workload.and_then(|workload| workload.overrides).and_then(|given| given.env);
        let given = given.unwrap_or_default();
        for variable in &given {
            let last = given.iter().rfind(|other| other.name == variable.name).unwrap();
            prop_assert!(found.contains(&json!(last)));
        }
    }

    #[test]
    fn the_same_world_later_gives_the_very_same_status_and_nothing_new_to_tell(seen in seen()) {
        let first = llamastack::status(&seen, &plan(&seen), &Outcome::default());
        let mut later = seen;
        later.object.status = Some(stored(&first));
        later.now += SignedDuration::from_hours(1);
        let again = plan(&later);
        prop_assert_eq!(llamastack::status(&later, &again, &Outcome::default()), stored(&first));
        prop_assert_eq!(again.events, []);
    }

    /// Law 10: a better sentence changes no decision in a cluster that stored the old one.
    #[test]
    fn stored_messages_change_no_decision(seen in seen(), outcome in outcome()) {
        let mut stored = stored(&llamastack::status(&seen, &plan(&seen), &outcome));
        let mut seen = seen;
        // Without the codes, the texts are all there is.
        stored.findings.get_or_insert_default();
        seen.object.status = Some(stored.clone());
        let mut reworded = seen.clone();
        for condition in stored.conditions.iter_mut().flatten() {
            condition.message = "other words".into();
        }
        reworded.object.status = Some(stored);
        prop_assert_eq!(plan(&seen), plan(&reworded));
        let codes = |seen: &Snapshot| {
            let status = llamastack::status(seen, &plan(seen), &outcome);
            let conditions = status.conditions.into_iter().flatten();
            let conditions: Vec<_> = conditions.map(|known| (known.type_, known.status, known.reason)).collect();
            (status.phase, status.findings, status.pod_problem, status.config_generation, conditions)
        };
        prop_assert_eq!(codes(&seen), codes(&reworded));
    }

    /// Old pods may start again at any time while a new spec is on its way.
    #[test]
    fn no_configuration_goes_that_a_pod_may_need(seen in seen()) {
        let plan = plan(&seen);
        let stay = |name: &str| {
            let swept = plan.prune.iter().any(|kind| kind.kind == "ConfigMap");
            !swept || plan.writes.iter().any(|write| write.object().unwrap().metadata.name.as_deref() == Some(name))
        };
        let live = seen.deployment.as_ref().map(|live| mounted_config_maps(&live.template)).unwrap_or_default();
        let in_use = seen.in_use.clone().unwrap_or_default();
        for map in &seen.config_maps {
            if live.contains(&map.name) || in_use.contains(&map.name) || seen.in_use.is_none() {
                prop_assert!(stay(&map.name), "{}", map.name);
            }
        }
    }

    #[test]
    fn values_of_the_environment_are_told_nowhere(seen in seen(), outcome in outcome()) {
        let plan = plan(&seen);
        let told = format!("{:?}{:?}{}", plan.findings, plan.events, json!(llamastack::status(&seen, &plan, &outcome)));
        prop_assert!(!told.contains(SECRET), "{}", told);
    }
}
