//! Where the configuration comes from, what the pods are given of it, and what stays of earlier ones.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::{Value, json};
use steersman_api::llamastack::status::Phase;
use steersman_plan::llamastack;
use steersman_plan::llamastack::validate::Kind;
use steersman_plan::llamastack::{ObservedConfigMap, ObservedReference, Snapshot, plan, referred};
use steersman_reconcile::{EventType, Failure, ObjectId, Outcome, Requeue};

use super::{a_new_object, an_object, now, order, settled, stored, written};

const VLLM: &str = r"
distribution: {name: starter}
providers:
  inference: {provider: vllm, endpoint: 'http://vllm:8000', apiKey: {secretKeyRef: {name: vllm, key: token}}}
resources: {models: [llama]}
";

/// With everything there that the spec refers to.
pub fn found(mut seen: Snapshot) -> Snapshot {
    seen.references = referred(&seen.object)
        .into_iter()
        .map(|reference| {
            let secret = reference.named.kind == Kind::Secret;
            let content = || reference.keys.iter().map(|key| (key.clone(), "version: 2".to_owned())).collect();
            ObservedReference {
                secret,
                namespace: reference.named.namespace.clone(),
                name: reference.named.name.clone(),
                content: (!secret).then(content),
                keys: Some(reference.keys.iter().cloned().collect()),
            }
        })
        .collect();
    seen
}

pub fn template(seen: &Snapshot) -> Value {
    written(&plan(seen), "Deployment").unwrap_or_else(|| panic!("{:?}", plan(seen).findings))["spec"]["template"]
        .clone()
}

pub fn container(seen: &Snapshot) -> Value {
    template(seen)["spec"]["containers"][0].clone()
}

pub fn env(seen: &Snapshot, name: &str) -> Value {
    let found = container(seen)["env"].as_array().unwrap().iter().find(|env| env["name"] == name).cloned();
    found.unwrap_or_default()
}

fn condition(seen: &Snapshot, outcome: &Outcome, type_: &str) -> Option<[String; 3]> {
    let status = llamastack::status(seen, &plan(seen), outcome);
    let known = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == type_)?;
    Some([known.status, known.reason, known.message])
}

fn says(seen: &Snapshot, type_: &str, expected: [&str; 3]) {
    assert_eq!(condition(seen, &Outcome::default(), type_), Some(expected.map(str::to_owned)), "{type_}");
}

fn name_of(seen: &Snapshot) -> String {
    written(&plan(seen), "ConfigMap").unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn providers_make_a_config_map_and_one_deployment_that_uses_it() {
    let seen = found(an_object(VLLM));
    let map = written(&plan(&seen), "ConfigMap").unwrap();
    let name = name_of(&seen);
    let hash = map["metadata"]["annotations"]["steersman.dev/config-hash"].as_str().unwrap();
    assert_eq!((hash.len(), name.clone()), (64, format!("starter-config-{}", &hash[..8])));
    assert_eq!(map["immutable"], true);
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/component"], "generated-config");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/instance"], "starter");
    let text = map["data"]["config.yaml"].as_str().unwrap();
    assert!(text.contains("http://vllm:8000") && text.contains("${env.LLSD_VLLM_API_KEY"), "{text}");
    assert_eq!(
        order(&plan(&seen)),
        [
            "apply ServiceAccount starter-sa".to_owned(),
            format!("apply ConfigMap {name}"),
            "apply Deployment starter".to_owned(),
            "apply Service starter-service".to_owned(),
        ]
    );
    assert_eq!(template(&seen)["metadata"]["annotations"]["configmap.hash/user-config"], hash);
    let volume = json!({ "name": "user-config", "configMap": { "name": name } });
    assert_eq!(template(&seen)["spec"]["volumes"][1], volume);
    let mount = json!({ "name": "user-config", "mountPath": "/etc/llama-stack", "readOnly": true });
    assert_eq!(container(&seen)["volumeMounts"][1], mount);
    let command = container(&seen)["command"].clone();
    assert_eq!((&command[0], &command[1]), (&json!("/bin/sh"), &json!("-c")));
    let key = env(&seen, "LLSD_VLLM_API_KEY")["valueFrom"]["secretKeyRef"].clone();
    assert_eq!(key, json!({ "name": "vllm", "key": "token" }));
}

#[test]
fn a_config_map_of_the_user_is_mounted_as_it_is_and_its_content_counts() {
    let mine = |content: &str| {
        let mut seen = found(a_new_object(
            "server: {distribution: {image: x}, containerSpec: {port: 9000}, userConfig: {configMapName: mine}}",
        ));
        seen.references[0].content = Some([("config.yaml".to_owned(), content.to_owned())].into());
        seen
    };
    let seen = mine("version: 2");
    assert_eq!(written(&plan(&seen), "ConfigMap"), None, "it is the user's");
    assert_eq!(template(&seen)["spec"]["volumes"][1]["configMap"]["name"], "mine");
    let script = container(&seen)["command"][2].as_str().unwrap().to_owned();
    assert!(script.contains("uvicorn llama_stack.core.server.server:create_app --factory"), "{script}");
    assert!(!script.contains("--ssl"), "{script}");
    let hash = |seen: &Snapshot| template(seen)["metadata"]["annotations"]["configmap.hash/user-config"].clone();
    assert_eq!(hash(&seen), hash(&mine("version: 2")));
    assert_ne!(hash(&seen), hash(&mine("version: 3")));
    assert_eq!(plan(&seen).findings, []);
    says(
        &settled(seen),
        "DeploymentUpdated",
        ["True", "DeploymentUpdateSucceeded", "Deployment updated with config mine"],
    );
}

#[test]
fn a_config_map_of_another_namespace_is_copied() {
    let seen = found(a_new_object(
        "server: {distribution: {name: starter}, userConfig: {configMapName: mine, configMapNamespace: other}}",
    ));
    let map = written(&plan(&seen), "ConfigMap").unwrap();
    assert_eq!(map["data"]["config.yaml"], "version: 2");
    assert_eq!(map["metadata"]["namespace"], "team-a");
    assert_eq!(template(&seen)["spec"]["volumes"][1]["configMap"]["name"], map["metadata"]["name"]);
}

#[test]
fn the_distribution_s_own_configuration_mounts_nothing() {
    let seen = an_object("{distribution: {name: starter}}");
    assert_eq!(order(&plan(&seen)), ["apply ServiceAccount starter-sa", "apply Deployment starter"]);
    assert_eq!(container(&seen).get("command"), None);
    let seen = settled(seen);
    for type_ in ["ConfigGenerated", "SecretsResolved", "DeploymentUpdated"] {
        assert_eq!(condition(&seen, &Outcome::default(), type_), None, "{type_}");
    }
    let status = seen.object.status.unwrap();
    assert_eq!(status.config_generation, None);
    assert_eq!(status.resolved_distribution.unwrap().config_source.as_deref(), Some("embedded"));
}

#[test]
fn what_the_storage_needs_runs_before_the_server() {
    let seen = found(an_object(
        "{distribution: {name: starter}, storage: {sql: {type: postgres, connectionString: {name: pg, key: url}}}}",
    ));
    let pod = template(&seen)["spec"].clone();
    assert_eq!(pod["initContainers"][0]["image"], "steersman:1");
    assert!(container(&seen)["command"][2].as_str().unwrap().contains("\n. /run/steersman/storage.env\n"));
    assert!(pod["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == "storage-env"));

    let mut without = seen;
    without.settings.operator_image = None;
    let told = plan(&without).findings;
    assert!(told.iter().any(|finding| finding.remedy.contains("--operator-image")), "{told:?}");
    assert!(plan(&without).writes.is_empty());
}

/// FR-073, FR-097.
#[test]
fn a_missing_secret_is_awaited_and_leaves_what_runs() {
    let mut seen = settled(found(an_object(VLLM)));
    let before = seen.object.status.clone().unwrap();
    says(&seen, "SecretsResolved", ["True", "AllSecretsFound", "Resolved 1 secret references"]);
    seen.references[0].keys = None;
    let now = plan(&seen);
    assert!(now.writes.is_empty() && now.prune.is_empty());
    assert_eq!(now.requeue, Requeue::AwaitChange, "a watch tells of it");
    assert_eq!((now.events[0].type_, now.events[0].reason), (EventType::Warning, "SecretResolutionFailed"));
    says(
        &seen,
        "SecretsResolved",
        [
            "False",
            "SecretNotFound",
            "Secret \"vllm\" not found in namespace \"team-a\". Referenced by: spec.providers.inference.apiKey.secretKeyRef",
        ],
    );
    assert_eq!(
        condition(&seen, &Outcome::default(), "ConfigGenerated").unwrap()[..2],
        ["False", "ConfigGenerationFailed"]
    );
    let status = llamastack::status(&seen, &now, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.config_generation, before.config_generation, "that one still runs");
    assert_eq!(status.resolved_distribution, before.resolved_distribution);
    says(&seen, "Available", ["True", "MinimumReplicasAvailable", "1/1 replicas available"]);

    seen.references[0].keys = Some(["other".to_owned()].into());
    let said = condition(&seen, &Outcome::default(), "SecretsResolved").unwrap();
    assert_eq!(said[..2], ["False", "SecretKeyMissing"]);
}

#[test]
fn what_was_generated_is_told_once_with_its_figures() {
    let seen = found(an_object(VLLM));
    let first = plan(&seen);
    let reasons =
        |plan: &steersman_plan::llamastack::Plan| plan.events.iter().map(|note| note.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&first), ["ConfigGenerated"]);
    let mut seen = seen;
    seen.object.status = Some(stored(&llamastack::status(&seen, &first, &Outcome { written: 4, failure: None })));
    assert_eq!(condition(&seen, &Outcome::default(), "DeploymentUpdated"), None, "nobody has seen it yet");

    let name = name_of(&seen);
    let mut live = settled(found(an_object(VLLM)));
    let settled_status = std::mem::replace(&mut live.object.status, seen.object.status.clone());
    assert_eq!(reasons(&plan(&live)), ["DeploymentUpdated"], "now it was seen");
    live.object.status = settled_status;
    assert_eq!(reasons(&plan(&live)), [""; 0]);
    let message = format!("Deployment updated with config {name}");
    says(&live, "DeploymentUpdated", ["True", "DeploymentUpdateSucceeded", &message]);
    says(&live, "Available", ["True", "MinimumReplicasAvailable", "1/1 replicas available with current config"]);
    let status = live.object.status.clone().unwrap();
    let generation = status.config_generation.clone().unwrap();
    assert_eq!((generation.config_map_name, generation.config_version), (Some(name), Some(2)));
    assert_eq!(generation.resource_count, Some(1));
    let count = generation.provider_count.unwrap();
    let generated = format!("Generated config.yaml with {count} providers and 1 models");
    says(&live, "ConfigGenerated", ["True", "ConfigGenerationSucceeded", &generated]);

    live.now += SignedDuration::from_hours(1);
    assert_eq!(llamastack::status(&live, &plan(&live), &Outcome::default()), status, "nothing moves with the time");
}

/// Between the first new pod and the last old one, what is available is not what was asked for.
#[test]
fn a_rollout_is_not_available_while_old_pods_serve() {
    let live = |ready, updated, pods| {
        let mut seen = settled(found(an_object(VLLM)));
        let deployment = seen.deployment.as_mut().unwrap();
        (deployment.ready, deployment.updated, deployment.pods) = (ready, updated, pods);
        seen
    };
    let rolling = |message| ["False", "RolloutInProgress", message];
    says(&live(1, 0, 1), "Available", rolling("Rolling update in progress: 0/1 updated"));
    says(&live(1, 1, 2), "Available", rolling("Rolling update in progress: 1/1 updated"));
    says(&live(0, 1, 1), "Available", ["False", "ReplicasUnavailable", "0/1 replicas available"]);
    let current = "1/1 replicas available with current config";
    says(&live(1, 1, 1), "Available", ["True", "MinimumReplicasAvailable", current]);
}

#[test]
fn a_refused_deployment_is_told() {
    let seen = settled(found(an_object(VLLM)));
    let failure = Failure {
        object: ObjectId::new("Deployment", "team-a", "starter"),
        message: "no".into(),
        transient: false,
        conflict: false,
    };
    let outcome = Outcome { written: 0, failure: Some(failure) };
    assert_eq!(
        condition(&seen, &outcome, "DeploymentUpdated").unwrap(),
        ["False", "DeploymentUpdateFailed", "Failed to update Deployment: Deployment team-a/starter: no"]
    );
}

/// FR-101.
#[test]
fn a_spec_that_a_newer_operator_cannot_build_is_told_as_such_and_stays_so() {
    let mut seen = settled(found(an_object(VLLM)));
    let later = |seen: &Snapshot| condition(seen, &Outcome::default(), "ConfigGenerated").unwrap();
    seen.object.provider_merge = Some("sideways".into());
    assert_eq!(later(&seen)[1], "ConfigGenerationFailed", "the same operator: somebody has changed something");
    assert_eq!(plan(&seen).events[0].reason, "ConfigGenerationFailed", "and the event has the same word");
    seen.settings.operator_version = "0.2.0".into();
    let told = later(&seen);
    assert_eq!(told[..2], ["False", "UpgradeConfigFailure"]);
    assert!(
        told[2].starts_with("Config generation failed after operator upgrade: metadata.annotations"),
        "{}",
        told[2]
    );
    seen.object.status = Some(stored(&llamastack::status(&seen, &plan(&seen), &Outcome::default())));
    assert_eq!(later(&seen), told);
    seen.object.generation = Some(2);
    assert_eq!(later(&seen)[1], "ConfigGenerationFailed", "another spec");
}

#[test]
fn an_image_without_a_base_says_what_it_needs() {
    let seen = found(an_object(&VLLM.replace("name: starter", "image: x")));
    let told = condition(&seen, &Outcome::default(), "ConfigGenerated").unwrap();
    assert_eq!(
        told,
        [
            "False",
            "BaseConfigRequired",
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
         docs/configuration.md for details.",
        ]
    );
}

fn old(name: &str, age: i64) -> ObservedConfigMap {
    let created = Some(now() - SignedDuration::from_hours(age));
    ObservedConfigMap { name: name.into(), config_yaml: name.into(), created }
}

fn stay(seen: &Snapshot) -> Vec<String> {
    let maps =
        plan(seen).writes.into_iter().map(|write| json!(write.object())).filter(|made| made["kind"] == "ConfigMap");
    let names: BTreeSet<String> = maps.map(|map| map["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let current = name_of(&seen.clone());
    names.into_iter().filter(|name| *name != current).collect()
}

fn swept(seen: &Snapshot) -> bool {
    plan(seen).prune.iter().any(|kind| kind.kind == "ConfigMap")
}

#[test]
fn two_configurations_stay_and_those_that_pods_still_use() {
    let mut seen = settled(found(an_object(VLLM)));
    seen.config_maps = vec![old("a", 4), old("b", 2), old("c", 3)];
    assert_eq!(stay(&seen), ["a", "b", "c"], "nobody has looked what is in use");
    seen.in_use = Some(BTreeSet::new());
    assert_eq!((stay(&seen), swept(&seen)), (vec!["b".to_owned()], true), "the newest beside the current one");
    seen.in_use = Some(["a".to_owned()].into());
    assert_eq!(stay(&seen), ["a", "b"]);

    seen.deployment.as_mut().unwrap().template["spec"]["volumes"][1]["configMap"]["name"] = json!("c");
    assert_eq!((stay(&seen), swept(&seen)), (["a", "b", "c"].map(str::to_owned).to_vec(), false), "not yet in use");

    let mut seen = settled(found(an_object(VLLM)));
    seen.config_maps = vec![old("a", 4), old("b", 2), old("c", 3)];
    seen.in_use = Some(BTreeSet::new());
    seen.deployment.as_mut().unwrap().observed_generation = Some(2);
    assert!(!swept(&seen), "its controller has not seen it");
    let live = seen.deployment.as_mut().unwrap();
    (live.observed_generation, live.updated) = (live.generation, 0);
    assert!(!swept(&seen), "pods of the old template are left");
}

#[test]
fn another_content_under_the_same_name_gets_a_longer_one() {
    let mut seen = found(an_object(VLLM));
    let short = name_of(&seen);
    let text = written(&plan(&seen), "ConfigMap").unwrap()["data"]["config.yaml"].as_str().unwrap().to_owned();
    seen.config_maps = vec![ObservedConfigMap { name: short.clone(), config_yaml: "else".into(), created: None }];
    let long = name_of(&seen);
    assert!(long.starts_with(&short) && long.len() == short.len() + 8, "{long}");
    seen.config_maps = vec![ObservedConfigMap { name: long.clone(), config_yaml: text, created: None }];
    assert_eq!(name_of(&seen), long, "the name stays when the other is gone");
}

/// One configuration per reconcile: the status is rendered from the plan's resolution, whatever the snapshot resolves to now.
#[test]
fn status_does_not_resolve_again() {
    let seen = settled(found(an_object(VLLM)));
    let plan = plan(&seen);
    let mut unresolvable = seen.clone();
    unresolvable.references.clear();
    unresolvable.settings.distributions.clear();
    unresolvable.object.provider_merge = Some("sideways".into());
    let status = llamastack::status(&unresolvable, &plan, &Outcome::default());
    let stored = seen.object.status.unwrap();
    assert_eq!(status.conditions, stored.conditions);
    assert_eq!(status.config_generation, stored.config_generation);
    assert_eq!(status.resolved_distribution, stored.resolved_distribution);
}
