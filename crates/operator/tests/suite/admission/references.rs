//! References to missing Secrets and ConfigMaps: refused or warned about, and never checked again once accepted.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::audit::AuditedWrite;
use steersman_testkit::{object, wait};

use super::{AdmissionEnv, IDENTITY, manifest};

fn with_secret(name: &str, key: &str) -> Value {
    let inference = json!({ "provider": "vllm", "endpoint": "http://v", "apiKey": { "name": name, "key": key } });
    manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": inference } }))
}

async fn create_secret(env: &AdmissionEnv, name: &str) {
    let secret: Secret = object(json!({ "metadata": { "name": name }, "stringData": { "token": "hush-hush" } }));
    env.namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn only_added_references_are_checked() {
    let Some(env) = AdmissionEnv::start("secrets", &[]).await else { return };
    let namespace = env.namespace.name();
    let absent = format!("spec.providers.inference.apiKey.name: Secret \"creds\" not found in namespace {namespace:?}");
    let output = env.apply(&with_secret("creds", "token"), &[]).await.failure();
    assert!(output.contains("The LlamaStackDistribution \"stack\" is invalid") && output.contains(&absent), "{output}");
    create_secret(&env, "creds").await;
    let output = env.apply(&with_secret("creds", "tokn"), &[]).await.failure();
    assert!(output.contains("spec.providers.inference.apiKey.key: Key \"tokn\" not found in Secret"), "{output}");
    env.apply(&with_secret("creds", "token"), &[]).await.ok();

    // The Secret is deleted. The object can still be changed, unless the change adds another missing reference.
    env.namespace.api::<Secret>().delete("creds", &DeleteParams::default()).await.unwrap();
    let mut changed = with_secret("creds", "token");
    changed["spec"]["workload"] = json!({ "replicas": 2 });
    env.apply(&changed, &[]).await.ok();
    let output = env.apply(&with_secret("others", "token"), &[]).await.failure();
    assert!(output.contains("Secret \"others\" not found"), "{output}");
    env.kubectl(&["delete", "llsd", "stack"]).await.ok();
    assert!(!env.operator.log().contains("hush-hush"));
}

#[tokio::test]
async fn setting_turns_missing_references_into_warnings() {
    let Some(env) = AdmissionEnv::start("warned", &["--missing-references", "warn"]).await else { return };
    let output = env.apply(&with_secret("creds", "token"), &[]).await;
    assert!(output.is_ok(), "{}", output.stderr);
    assert!(
        output.stderr.contains("Warning: spec.providers.inference.apiKey.name: Secret \"creds\" not found"),
        "{}",
        output.stderr
    );
    // A field without effect is a warning with every setting.
    let unused =
        manifest("unused", json!({ "distribution": { "name": "starter" }, "storage": { "kv": { "endpoint": "e" } } }));
    let output = env.apply(&unused, &[]).await;
    let warning = "Warning: spec.storage.kv.endpoint: endpoint is only valid when type is redis";
    assert!(output.is_ok() && output.stderr.contains(warning), "{}", output.stderr);
    let wrong = manifest("wrong", json!({ "distribution": { "name": "startr" } }));
    assert!(env.apply(&wrong, &[]).await.failure().contains("Unknown distribution"));
}

/// A user who may write objects but not read Secrets must not learn which Secrets and keys exist.
#[tokio::test]
async fn response_depends_on_rights_of_requester() {
    let Some(env) = AdmissionEnv::start("requesters", &[]).await else { return };
    create_secret(&env, "creds").await;
    let config: ConfigMap = object(json!({ "metadata": { "name": "config" }, "data": { "config.yaml": "a: b" } }));
    env.namespace.api::<ConfigMap>().create(&PostParams::default(), &config).await.unwrap();
    let all = json!(["*"]);
    let write = json!({ "apiGroups": ["llamastack.io"], "resources": ["llamastackdistributions"], "verbs": all });
    let read = |resource: &str| json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get"] });
    let mut read_creds = read("secrets");
    read_creds["resourceNames"] = json!(["creds"]);
    for (user, rules) in [
        ("writer", json!([write])),
        ("reader", json!([write, read("secrets"), read("configmaps")])),
        ("reader-of-creds", json!([write, read_creds])),
    ] {
        env.grant(user, rules).await;
    }
    let with_config = |name: &str| {
        let config = json!({ "configMapName": name });
        manifest("stack", json!({ "distribution": { "name": "starter" }, "overrideConfig": config }))
    };
    let absent_secret = with_secret("absent", "token");
    let dry_run_as = async |user: &str, manifest: &Value| {
        let kubeconfig = env.cluster().user_kubeconfig(user).unwrap();
        env.apply(manifest, &["--dry-run=server", "--kubeconfig", kubeconfig.to_str().unwrap()]).await
    };

    let neutral = |path: &str, named: &str| {
        format!("Warning: {path}: {named} could not be checked for you, because you may not get it")
    };
    let key_path = "spec.providers.inference.apiKey.name";
    let unreported = [
        ("writer", with_secret("creds", "token"), neutral(key_path, "Secret \"creds\"")),
        ("writer", with_secret("creds", "tokn"), neutral(key_path, "Secret \"creds\"")),
        ("writer", absent_secret.clone(), neutral(key_path, "Secret \"absent\"")),
        ("writer", with_config("config"), neutral("spec.overrideConfig.configMapName", "ConfigMap \"config\"")),
        ("writer", with_config("absent"), neutral("spec.overrideConfig.configMapName", "ConfigMap \"absent\"")),
        ("reader-of-creds", absent_secret.clone(), neutral(key_path, "Secret \"absent\"")),
    ];
    let mut responses = Vec::new();
    for (user, manifest, expected) in unreported {
        let output = dry_run_as(user, &manifest).await;
        assert!(output.is_ok() && output.stderr.contains(&expected), "{user}: {}{}", output.stdout, output.stderr);
        responses
            .push(output.stderr.replace("creds", "NAME").replace("absent", "NAME").replace("\"config\"", "\"NAME\""));
    }
    assert_eq!(responses[0], responses[1], "a missing key is not revealed");
    assert_eq!(responses[0], responses[2], "a missing Secret is not revealed");
    assert_eq!(responses[3], responses[4], "a missing ConfigMap is not revealed");

    for (user, manifest, expected) in [
        ("reader", with_secret("creds", "tokn"), "Key \"tokn\" not found in Secret"),
        ("reader", absent_secret, "Secret \"absent\" not found in namespace"),
        ("reader", with_config("absent"), "failed to find overrideConfig ConfigMap \"absent\""),
        ("reader-of-creds", with_secret("creds", "tokn"), "Key \"tokn\" not found in Secret"),
    ] {
        let error = dry_run_as(user, &manifest).await.failure();
        assert!(error.contains(expected), "{user}: {error}");
    }
    for manifest in [with_secret("creds", "token"), with_config("config")] {
        let output = dry_run_as("reader", &manifest).await;
        assert!(output.is_ok() && !output.stderr.contains("Warning"), "{}{}", output.stdout, output.stderr);
    }
}

/// Users cause these requests, so they must not share connections with the controllers. Each client has its own user agent.
#[tokio::test]
async fn lookups_use_a_client_of_their_own() {
    let Some(env) = AdmissionEnv::start("lookups", &[]).await else { return };
    create_secret(&env, "creds").await;
    env.apply(&with_secret("creds", "token"), &[]).await.ok();
    // Other tests have operators of other names, which review scrapes.
    let is_lookup = |write: &AuditedWrite| {
        write.uri.contains("/subjectaccessreviews") && write.user_agent.contains(&format!(" {IDENTITY}"))
    };
    let agents = async || {
        let writes = env.cluster().audited_writes().unwrap();
        let agents: Vec<String> = writes.into_iter().filter(is_lookup).map(|write| write.user_agent).collect();
        (!agents.is_empty()).then_some(agents)
    };
    let agents = wait::eventually("the audit log has the reviews", agents).await.unwrap();
    assert!(agents.iter().all(|agent| agent.ends_with(&format!(" {IDENTITY} lookups"))), "{agents:?}");
}

/// A user who may only write objects in this namespace must not learn which ConfigMaps other namespaces have.
#[tokio::test]
async fn foreign_config_map_is_visible_only_with_label() {
    let Some(env) = AdmissionEnv::start("config-maps", &[]).await else { return };
    let elsewhere = env.cluster().namespace("elsewhere").await.unwrap();
    let maps: Api<ConfigMap> = elsewhere.api();
    for (name, labels) in [("closed", json!({})), ("open", json!({ "steersman.dev/shared-with": "All" }))] {
        let data = json!({ "ca-bundle.crt": "x", "config.yaml": "y" });
        let map: ConfigMap = object(json!({ "metadata": { "name": name, "labels": labels }, "data": data }));
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let bundle = |name: &str| {
        let bundle = json!({ "configMapName": name, "configMapNamespace": elsewhere.name() });
        manifest(
            "stack",
            json!({ "distribution": { "name": "starter" }, "networking": { "tls": { "caBundle": bundle } } }),
        )
    };
    // Only v1alpha1 has a namespace for the user's configuration; v1alpha2 keeps it in an annotation.
    let config = |name: &str| {
        let config = json!({ "configMapName": name, "configMapNamespace": elsewhere.name() });
        json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": { "name": "old" },
                "spec": { "server": { "distribution": { "name": "starter" }, "userConfig": config } } })
    };
    let dry_run = ["--dry-run=server"];
    let mut messages = Vec::new();
    for name in ["closed", "absent"] {
        let output = env.apply(&bundle(name), &dry_run).await.failure();
        let missing = format!("failed to find caBundle ConfigMap {name:?} in namespace {:?}", elsewhere.name());
        assert!(output.contains(&missing), "{output}");
        messages.push(output.replace(name, "NAME"));
        let output = env.apply(&config(name), &dry_run).await.failure();
        let message = "spec.server.userConfig.configMapName: failed to find overrideConfig ConfigMap";
        assert!(output.contains(&format!("{message} {name:?} in namespace {:?}", elsewhere.name())), "{output}");
        assert!(output.contains("with the label steersman.dev/shared-with="), "{output}");
    }
    assert_eq!(messages[0], messages[1], "a closed ConfigMap looks like an absent one");
    env.apply(&bundle("open"), &dry_run).await.ok();
    env.apply(&config("open"), &dry_run).await.ok();
}
