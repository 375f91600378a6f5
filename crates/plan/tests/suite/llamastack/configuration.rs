//! The source of the configuration, its use in the pods, and the retention of earlier ConfigMaps.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use steersman_api::llamastack::status::Phase;
use steersman_plan::llamastack;
use steersman_plan::llamastack::validate::ReferenceKind;
use steersman_plan::llamastack::{ObservedConfigMap, ObservedReference, Snapshot, plan, referred};
use steersman_reconcile::{EventType, Failure, ObjectId, Outcome, Requeue};

use super::{now, planned_object, settle, stored_status, v1alpha1_snapshot, v1alpha2_snapshot, write_order};

pub const VLLM: &str = r"
distribution: {name: starter}
providers:
  inference: {provider: vllm, endpoint: 'http://vllm:8000', apiKey: {secretKeyRef: {name: vllm, key: token}}}
resources: {models: [llama]}
";

/// Adds every object that the spec refers to.
pub fn with_references(mut snapshot: Snapshot) -> Snapshot {
    snapshot.references = referred(&snapshot.object)
        .into_iter()
        .map(|reference| {
            let secret = reference.named.kind == ReferenceKind::Secret;
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
    snapshot
}

pub fn template(snapshot: &Snapshot) -> Value {
    planned_object(&plan(snapshot), "Deployment").unwrap_or_else(|| panic!("{:?}", plan(snapshot).findings))["spec"]["template"]
        .clone()
}

pub fn container(snapshot: &Snapshot) -> Value {
    template(snapshot)["spec"]["containers"][0].clone()
}

pub fn env_variable(snapshot: &Snapshot, name: &str) -> Value {
    let found = container(snapshot)["env"].as_array().unwrap().iter().find(|env| env["name"] == name).cloned();
    found.unwrap_or_default()
}

fn condition_fields(snapshot: &Snapshot, outcome: &Outcome, type_: &str) -> Option<[String; 3]> {
    let status = llamastack::status(snapshot, &plan(snapshot), outcome);
    let known = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == type_)?;
    Some([known.status, known.reason, known.message])
}

fn assert_condition(snapshot: &Snapshot, type_: &str, expected: [&str; 3]) {
    assert_eq!(condition_fields(snapshot, &Outcome::default(), type_), Some(expected.map(str::to_owned)), "{type_}");
}

fn config_map_name(snapshot: &Snapshot) -> String {
    planned_object(&plan(snapshot), "ConfigMap").unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn providers_yield_config_map_and_one_deployment() {
    let snapshot = with_references(v1alpha2_snapshot(VLLM));
    let map = planned_object(&plan(&snapshot), "ConfigMap").unwrap();
    let name = config_map_name(&snapshot);
    let hash = map["metadata"]["annotations"]["steersman.dev/config-hash"].as_str().unwrap();
    assert_eq!((hash.len(), name.clone()), (64, format!("starter-config-{}", &hash[..8])));
    assert_eq!(map["immutable"], true);
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/component"], "generated-config");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/instance"], "starter");
    let text = map["data"]["config.yaml"].as_str().unwrap();
    assert!(text.contains("http://vllm:8000") && text.contains("${env.LLSD_VLLM_API_KEY"), "{text}");
    assert_eq!(
        write_order(&plan(&snapshot)),
        [
            "apply ServiceAccount starter-sa".to_owned(),
            format!("apply ConfigMap {name}"),
            "apply Deployment starter".to_owned(),
            "apply Service starter-service".to_owned(),
        ]
    );
    assert_eq!(template(&snapshot)["metadata"]["annotations"]["configmap.hash/user-config"], hash);
    let volume = json!({ "name": "user-config", "configMap": { "name": name } });
    assert_eq!(template(&snapshot)["spec"]["volumes"][1], volume);
    let mount = json!({ "name": "user-config", "mountPath": "/etc/llama-stack", "readOnly": true });
    assert_eq!(container(&snapshot)["volumeMounts"][1], mount);
    let command = container(&snapshot)["command"].clone();
    assert_eq!((&command[0], &command[1]), (&json!("/bin/sh"), &json!("-c")));
    let key = env_variable(&snapshot, "LLSD_VLLM_API_KEY")["valueFrom"]["secretKeyRef"].clone();
    assert_eq!(key, json!({ "name": "vllm", "key": "token" }));
}

#[test]
fn user_config_map_is_mounted_and_hashed() {
    let snapshot_with_content = |content: &str| {
        let mut snapshot = with_references(v1alpha1_snapshot(
            "server: {distribution: {image: x}, containerSpec: {port: 9000}, userConfig: {configMapName: mine}}",
        ));
        snapshot.references[0].content = Some([("config.yaml".to_owned(), content.to_owned())].into());
        snapshot
    };
    let snapshot = snapshot_with_content("version: 2");
    assert_eq!(planned_object(&plan(&snapshot), "ConfigMap"), None, "the user's ConfigMap is not copied");
    assert_eq!(template(&snapshot)["spec"]["volumes"][1]["configMap"]["name"], "mine");
    let script = container(&snapshot)["command"][2].as_str().unwrap().to_owned();
    assert!(script.contains("uvicorn llama_stack.core.server.server:create_app --factory"), "{script}");
    assert!(!script.contains("--ssl"), "{script}");
    let hash =
        |snapshot: &Snapshot| template(snapshot)["metadata"]["annotations"]["configmap.hash/user-config"].clone();
    assert_eq!(hash(&snapshot), hash(&snapshot_with_content("version: 2")));
    assert_ne!(hash(&snapshot), hash(&snapshot_with_content("version: 3")));
    assert_eq!(plan(&snapshot).findings, []);
    assert_condition(
        &settle(snapshot),
        "DeploymentUpdated",
        ["True", "DeploymentUpdateSucceeded", "Deployment updated with config mine"],
    );
}

#[test]
fn legacy_config_key_is_read() {
    let mut snapshot =
        with_references(v1alpha1_snapshot("server: {distribution: {image: x}, userConfig: {configMapName: mine}}"));
    let mut set_content = |key: &str| {
        snapshot.references[0].keys = Some([key.to_owned()].into());
        snapshot.references[0].content = Some([(key.to_owned(), "version: 2".to_owned())].into());
        snapshot.clone()
    };
    let legacy = set_content("run.yaml");
    assert_eq!(plan(&legacy).findings, []);
    assert_eq!(env_variable(&legacy, "LLAMA_STACK_CONFIG")["value"], "/etc/llama-stack/run.yaml");
    let other = set_content("other.yaml");
    assert_eq!(plan(&other).findings[0].reason, "ConfigMapNotFound");
    let mut copied = v1alpha1_snapshot(
        "server: {distribution: {image: x}, userConfig: {configMapName: mine, configMapNamespace: other}}",
    );
    copied.references = vec![ObservedReference { namespace: "other".into(), ..legacy.references[0].clone() }];
    assert_eq!(planned_object(&plan(&copied), "ConfigMap").unwrap()["data"]["config.yaml"], "version: 2");
}

#[test]
fn own_command_may_read_any_key() {
    for (overrides, expected) in [
        ("command: [run, it]", None),
        ("command: [run], args: [--it]", None),
        ("args: [--it]", Some("ConfigMapNotFound")),
    ] {
        let spec = format!(
            "server: {{distribution: {{image: x}}, userConfig: {{configMapName: mine}}, containerSpec: {{{overrides}}}}}"
        );
        let mut snapshot = with_references(v1alpha1_snapshot(&spec));
        snapshot.references[0].keys = Some(["own.yaml".to_owned()].into());
        snapshot.references[0].content = Some([("own.yaml".to_owned(), "version: 2".to_owned())].into());
        let found = plan(&snapshot).findings.first().map(|finding| finding.reason);
        assert_eq!(found, expected, "the start script ignores arguments and reads config.yaml: {overrides}");
    }
}

#[test]
fn external_providers_join_the_users_file() {
    let mut snapshot = with_references(v1alpha2_snapshot(
        "{distribution: {name: starter}, overrideConfig: {configMapName: mine}, \
         externalProviders: {inference: [{providerId: own, image: 'reg/own:1'}]}}",
    ));
    assert_eq!(plan(&snapshot).findings, []);
    let pod = template(&snapshot)["spec"].clone();
    let names: Vec<_> = pod["initContainers"].as_array().unwrap().iter().map(|init| init["name"].clone()).collect();
    assert_eq!(names, ["install-provider-own", "generate-config"]);
    let merge = &pod["initContainers"][1];
    assert_eq!((&merge["args"][2], &merge["image"]), (&json!("/etc/llama-stack/config.yaml"), &json!("steersman:1")));
    assert_eq!(pod["volumes"][1]["configMap"]["name"], "mine");
    assert_eq!(env_variable(&snapshot, "LLAMA_STACK_CONFIG")["value"], "/opt/llama-stack/config/config.yaml");
    assert_eq!(env_variable(&snapshot, "PYTHONPATH")["value"], "/opt/llama-stack/external-providers/python-packages");
    snapshot.settings.operator_image = None;
    assert_eq!(plan(&snapshot).findings[0].reason, "ConfigGenerationFailed", "the merge needs the operator's image");
}

#[test]
fn config_map_of_other_namespace_is_copied() {
    let snapshot = with_references(v1alpha1_snapshot(
        "server: {distribution: {name: starter}, userConfig: {configMapName: mine, configMapNamespace: other}}",
    ));
    let map = planned_object(&plan(&snapshot), "ConfigMap").unwrap();
    assert_eq!(map["data"]["config.yaml"], "version: 2");
    assert_eq!(map["metadata"]["namespace"], "team-a");
    assert_eq!(template(&snapshot)["spec"]["volumes"][1]["configMap"]["name"], map["metadata"]["name"]);
}

#[test]
fn embedded_configuration_mounts_nothing() {
    let snapshot = v1alpha2_snapshot("{distribution: {name: starter}}");
    assert_eq!(
        write_order(&plan(&snapshot)),
        ["apply ServiceAccount starter-sa", "apply Deployment starter", "apply Service starter-service"]
    );
    assert_eq!(container(&snapshot).get("command"), None);
    let snapshot = settle(snapshot);
    for type_ in ["ConfigGenerated", "SecretsResolved", "DeploymentUpdated"] {
        assert_eq!(condition_fields(&snapshot, &Outcome::default(), type_), None, "{type_}");
    }
    let status = snapshot.object.status.unwrap();
    assert_eq!(status.config_generation, None);
    assert_eq!(status.resolved_distribution.unwrap().config_source.as_deref(), Some("embedded"));
}

#[test]
fn storage_init_container_precedes_server() {
    let snapshot = with_references(v1alpha2_snapshot(
        "{distribution: {name: starter}, storage: {sql: {type: postgres, connectionString: {name: pg, key: url}}}}",
    ));
    let pod = template(&snapshot)["spec"].clone();
    assert_eq!(pod["initContainers"][0]["image"], "steersman:1");
    assert!(container(&snapshot)["command"][2].as_str().unwrap().contains("\n. /run/steersman/storage.env\n"));
    assert!(pod["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == "storage-env"));

    let mut without_operator_image = snapshot;
    without_operator_image.settings.operator_image = None;
    let findings = plan(&without_operator_image).findings;
    assert!(findings.iter().any(|finding| finding.remedy.contains("--operator-image")), "{findings:?}");
    assert!(plan(&without_operator_image).writes.is_empty());
}

/// FR-073, FR-097: without a referenced Secret nothing is written, and the previous configuration keeps running.
#[test]
fn missing_secret_is_awaited_without_writes() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    let before = snapshot.object.status.clone().unwrap();
    assert_condition(&snapshot, "SecretsResolved", ["True", "AllSecretsFound", "Resolved 1 secret references"]);
    snapshot.references[0].keys = None;
    let now = plan(&snapshot);
    assert!(now.writes.is_empty() && now.prune.is_empty());
    assert_eq!(now.requeue, Requeue::AwaitChange, "a watch reports the Secret");
    assert_eq!((now.events[0].type_, now.events[0].reason), (EventType::Warning, "SecretResolutionFailed"));
    assert_condition(
        &snapshot,
        "SecretsResolved",
        [
            "False",
            "SecretNotFound",
            "Secret \"vllm\" not found in namespace \"team-a\". Referenced by: spec.providers.inference.apiKey.secretKeyRef",
        ],
    );
    assert_eq!(
        condition_fields(&snapshot, &Outcome::default(), "ConfigGenerated").unwrap()[..2],
        ["False", "ConfigGenerationFailed"]
    );
    let status = llamastack::status(&snapshot, &now, &Outcome::default());
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(status.config_generation, before.config_generation, "the previous configuration still runs");
    assert_eq!(status.resolved_distribution, before.resolved_distribution);
    assert_condition(&snapshot, "Available", ["True", "MinimumReplicasAvailable", "1/1 replicas available"]);

    snapshot.references[0].keys = Some(["other".to_owned()].into());
    let secrets_resolved = condition_fields(&snapshot, &Outcome::default(), "SecretsResolved").unwrap();
    assert_eq!(secrets_resolved[..2], ["False", "SecretKeyMissing"]);
}

/// The operator may only get Secrets, so that nothing reports that a missing one was created.
#[test]
fn missing_secret_is_read_again_without_watch() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    snapshot.references[0].keys = None;
    snapshot.followed = false;
    assert_eq!(plan(&snapshot).requeue, Requeue::After(Duration::from_secs(15)));
    let condition = condition_fields(&snapshot, &Outcome::default(), "SecretsResolved").unwrap();
    assert_eq!(condition[..2], ["False", "SecretNotFound"]);
    let next = "Steersman reads it again every 15 s; with --secrets=watch and the role that `steersman rbac --secrets \
                watch` prints, it reacts at once";
    assert!(condition[2].ends_with(next), "{}", condition[2]);
}

/// The operator may not read Secrets: the server is built, and its kubelet reports what is missing.
#[test]
fn unread_secrets_count_as_existing() {
    let mut snapshot = v1alpha2_snapshot(VLLM);
    snapshot.settings.ignores_secrets = true;
    assert!(!plan(&snapshot).writes.is_empty());
    let condition = condition_fields(&snapshot, &Outcome::default(), "SecretsResolved").unwrap();
    assert_eq!(condition[..2], ["Unknown", "SecretsNotRead"]);
    assert!(condition[2].starts_with("1 secret references were not checked"), "{}", condition[2]);
}

#[test]
fn generated_configuration_is_reported_once_with_counts() {
    let snapshot = with_references(v1alpha2_snapshot(VLLM));
    let first = plan(&snapshot);
    let reasons =
        |plan: &steersman_plan::llamastack::Plan| plan.events.iter().map(|event| event.reason).collect::<Vec<_>>();
    assert_eq!(reasons(&first), ["ConfigGenerated"]);
    let mut snapshot = snapshot;
    snapshot.object.status =
        Some(stored_status(&llamastack::status(&snapshot, &first, &Outcome { written: 4, failure: None })));
    assert_eq!(
        condition_fields(&snapshot, &Outcome::default(), "DeploymentUpdated"),
        None,
        "the Deployment is not observed yet"
    );

    let name = config_map_name(&snapshot);
    let mut live = settle(with_references(v1alpha2_snapshot(VLLM)));
    let settled_status = std::mem::replace(&mut live.object.status, snapshot.object.status.clone());
    assert_eq!(reasons(&plan(&live)), ["DeploymentUpdated"], "the Deployment is observed");
    live.object.status = settled_status;
    assert_eq!(reasons(&plan(&live)), [""; 0]);
    let message = format!("Deployment updated with config {name}");
    assert_condition(&live, "DeploymentUpdated", ["True", "DeploymentUpdateSucceeded", &message]);
    assert_condition(
        &live,
        "Available",
        ["True", "MinimumReplicasAvailable", "1/1 replicas available with current config"],
    );
    let status = live.object.status.clone().unwrap();
    let generation = status.config_generation.clone().unwrap();
    assert_eq!((generation.config_map_name, generation.config_version), (Some(name), Some(2)));
    assert_eq!(generation.resource_count, Some(1));
    let count = generation.provider_count.unwrap();
    let generated = format!("Generated config.yaml with {count} providers and 1 models");
    assert_condition(&live, "ConfigGenerated", ["True", "ConfigGenerationSucceeded", &generated]);

    live.now += SignedDuration::from_hours(1);
    assert_eq!(
        llamastack::status(&live, &plan(&live), &Outcome::default()),
        status,
        "the status does not depend on the time"
    );
}

/// Old pods serve the old configuration during a rollout, so that the new one is not available yet.
#[test]
fn rollout_is_unavailable_while_old_pods_serve() {
    let live = |ready, updated, pods| {
        let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
        let deployment = snapshot.deployment.as_mut().unwrap();
        (deployment.ready, deployment.updated, deployment.pods) = (ready, updated, pods);
        snapshot
    };
    let rolling = |message| ["False", "RolloutInProgress", message];
    assert_condition(&live(1, 0, 1), "Available", rolling("Rolling update in progress: 0/1 updated"));
    assert_condition(&live(1, 1, 2), "Available", rolling("Rolling update in progress: 1/1 updated"));
    assert_condition(&live(0, 1, 1), "Available", ["False", "ReplicasUnavailable", "0/1 replicas available"]);
    let current = "1/1 replicas available with current config";
    assert_condition(&live(1, 1, 1), "Available", ["True", "MinimumReplicasAvailable", current]);
}

#[test]
fn rejected_deployment_is_reported() {
    let snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    let failure = Failure {
        object: ObjectId::new("Deployment", "team-a", "starter"),
        message: "no".into(),
        transient: false,
        conflict: false,
    };
    let outcome = Outcome { written: 0, failure: Some(failure) };
    assert_eq!(
        condition_fields(&snapshot, &outcome, "DeploymentUpdated").unwrap(),
        ["False", "DeploymentUpdateFailed", "Failed to update Deployment: Deployment team-a/starter: no"]
    );
}

/// FR-101: `ConfigGenerated` has the reason `UpgradeConfigFailure` if only the operator has changed.
#[test]
fn failure_after_upgrade_has_own_reason() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    let config_generated =
        |snapshot: &Snapshot| condition_fields(snapshot, &Outcome::default(), "ConfigGenerated").unwrap();
    snapshot.object.provider_merge = Some("sideways".into());
    assert_eq!(config_generated(&snapshot)[1], "ConfigGenerationFailed", "the operator was not upgraded");
    assert_eq!(plan(&snapshot).events[0].reason, "ConfigGenerationFailed", "the event has the reason of the condition");
    snapshot.settings.operator_version = "0.2.0".into();
    let condition = config_generated(&snapshot);
    assert_eq!(condition[..2], ["False", "UpgradeConfigFailure"]);
    assert!(
        condition[2].starts_with("Config generation failed after operator upgrade: metadata.annotations"),
        "{}",
        condition[2]
    );
    snapshot.object.status = Some(stored_status(&llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default())));
    assert_eq!(config_generated(&snapshot), condition);
    snapshot.object.generation = Some(2);
    assert_eq!(config_generated(&snapshot)[1], "ConfigGenerationFailed", "a new generation is no upgrade failure");
}

#[test]
fn image_without_base_names_requirements() {
    let snapshot = with_references(v1alpha2_snapshot(&VLLM.replace("name: starter", "image: x")));
    let condition = condition_fields(&snapshot, &Outcome::default(), "ConfigGenerated").unwrap();
    assert_eq!(
        condition,
        [
            "False",
            "BaseConfigRequired",
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
         docs/configuration.md for details.",
        ]
    );
}

fn old_config_map(name: &str, age: i64) -> ObservedConfigMap {
    let created = Some(now() - SignedDuration::from_hours(age));
    ObservedConfigMap { name: name.into(), config_yaml: name.into(), created }
}

fn retained_config_maps(snapshot: &Snapshot) -> Vec<String> {
    let maps =
        plan(snapshot).writes.into_iter().map(|write| json!(write.object())).filter(|made| made["kind"] == "ConfigMap");
    let names: BTreeSet<String> = maps.map(|map| map["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    let current = config_map_name(&snapshot.clone());
    names.into_iter().filter(|name| *name != current).collect()
}

fn prunes_config_maps(snapshot: &Snapshot) -> bool {
    plan(snapshot).prune.iter().any(|kind| kind.kind == "ConfigMap")
}

#[test]
fn unused_config_maps_are_pruned_beyond_two() {
    let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    snapshot.config_maps = vec![old_config_map("a", 4), old_config_map("b", 2), old_config_map("c", 3)];
    assert_eq!(retained_config_maps(&snapshot), ["a", "b", "c"], "all are kept until usage is known");
    snapshot.in_use = Some(BTreeSet::new());
    assert_eq!(
        (retained_config_maps(&snapshot), prunes_config_maps(&snapshot)),
        (vec!["b".to_owned()], true),
        "the current one and the newest other one are kept"
    );
    snapshot.in_use = Some(["a".to_owned()].into());
    assert_eq!(retained_config_maps(&snapshot), ["a", "b"]);

    snapshot.deployment.as_mut().unwrap().template["spec"]["volumes"][1]["configMap"]["name"] = json!("c");
    assert_eq!(
        (retained_config_maps(&snapshot), prunes_config_maps(&snapshot)),
        (["a", "b", "c"].map(str::to_owned).to_vec(), false),
        "the current ConfigMap is not in use yet"
    );

    let mut snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    snapshot.config_maps = vec![old_config_map("a", 4), old_config_map("b", 2), old_config_map("c", 3)];
    snapshot.in_use = Some(BTreeSet::new());
    snapshot.deployment.as_mut().unwrap().observed_generation = Some(2);
    assert!(!prunes_config_maps(&snapshot), "the Deployment controller has not observed the template");
    let live = snapshot.deployment.as_mut().unwrap();
    (live.observed_generation, live.updated) = (live.generation, 0);
    assert!(!prunes_config_maps(&snapshot), "pods of the old template still run");
}

#[test]
fn config_map_hash_collision_extends_name() {
    let mut snapshot = with_references(v1alpha2_snapshot(VLLM));
    let short_name = config_map_name(&snapshot);
    let text =
        planned_object(&plan(&snapshot), "ConfigMap").unwrap()["data"]["config.yaml"].as_str().unwrap().to_owned();
    snapshot.config_maps =
        vec![ObservedConfigMap { name: short_name.clone(), config_yaml: "else".into(), created: None }];
    let long_name = config_map_name(&snapshot);
    assert!(long_name.starts_with(&short_name) && long_name.len() == short_name.len() + 8, "{long_name}");
    snapshot.config_maps = vec![ObservedConfigMap { name: long_name.clone(), config_yaml: text, created: None }];
    assert_eq!(config_map_name(&snapshot), long_name, "the name stays after the colliding ConfigMap is deleted");
}

/// A reconcile resolves the configuration once: the status is rendered from the plan's resolution, not from the
/// snapshot.
#[test]
fn status_does_not_resolve_again() {
    let snapshot = settle(with_references(v1alpha2_snapshot(VLLM)));
    let plan = plan(&snapshot);
    let mut unresolvable = snapshot.clone();
    unresolvable.references.clear();
    unresolvable.settings.distributions.clear();
    unresolvable.object.provider_merge = Some("sideways".into());
    let status = llamastack::status(&unresolvable, &plan, &Outcome::default());
    let settled_status = snapshot.object.status.unwrap();
    assert_eq!(status.conditions, settled_status.conditions);
    assert_eq!(status.config_generation, settled_status.config_generation);
    assert_eq!(status.resolved_distribution, settled_status.resolved_distribution);
}
