//! Secrets and ConfigMaps that are not there: refused, warned of, and never held against what was accepted before.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use steersman_testkit::object;

use super::{Court, manifest};

fn with_secret(name: &str, key: &str) -> Value {
    let inference = json!({ "provider": "vllm", "endpoint": "http://v", "apiKey": { "name": name, "key": key } });
    manifest("stack", json!({ "distribution": { "name": "starter" }, "providers": { "inference": inference } }))
}

async fn create_secret(court: &Court, name: &str) {
    let secret: Secret = object(json!({ "metadata": { "name": name }, "stringData": { "token": "hush-hush" } }));
    court.namespace.all::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
}

#[tokio::test]
async fn only_references_that_a_request_adds_are_asked_for() {
    let Some(court) = Court::open("secrets", &[]).await else { return };
    let namespace = court.namespace.name();
    let absent = format!("spec.providers.inference.apiKey.name: Secret \"creds\" not found in namespace {namespace:?}");
    let said = court.apply(&with_secret("creds", "token"), &[]).await.failure();
    assert!(said.contains("The LlamaStackDistribution \"stack\" is invalid") && said.contains(&absent), "{said}");
    create_secret(&court, "creds").await;
    let said = court.apply(&with_secret("creds", "tokn"), &[]).await.failure();
    assert!(said.contains("spec.providers.inference.apiKey.key: Key \"tokn\" not found in Secret"), "{said}");
    court.apply(&with_secret("creds", "token"), &[]).await.ok();

    // The Secret goes. The object can be changed all the same, as long as it asks for nothing else that is missing.
    court.namespace.all::<Secret>().delete("creds", &DeleteParams::default()).await.unwrap();
    let mut changed = with_secret("creds", "token");
    changed["spec"]["workload"] = json!({ "replicas": 2 });
    court.apply(&changed, &[]).await.ok();
    let said = court.apply(&with_secret("others", "token"), &[]).await.failure();
    assert!(said.contains("Secret \"others\" not found"), "{said}");
    court.kubectl(&["delete", "llsd", "stack"]).await.ok();
    assert!(!court.operator.log().contains("hush-hush"));
}

#[tokio::test]
async fn a_setting_turns_what_is_missing_into_a_warning() {
    let Some(court) = Court::open("warned", &["--missing-references", "warn"]).await else { return };
    let said = court.apply(&with_secret("creds", "token"), &[]).await;
    assert!(said.is_ok(), "{}", said.stderr);
    assert!(
        said.stderr.contains("Warning: spec.providers.inference.apiKey.name: Secret \"creds\" not found"),
        "{}",
        said.stderr
    );
    // What has no effect is a warning whatever the setting.
    let unused =
        manifest("unused", json!({ "distribution": { "name": "starter" }, "storage": { "kv": { "endpoint": "e" } } }));
    let said = court.apply(&unused, &[]).await;
    let warning = "Warning: spec.storage.kv.endpoint: endpoint is only valid when type is redis";
    assert!(said.is_ok() && said.stderr.contains(warning), "{}", said.stderr);
    let wrong = manifest("wrong", json!({ "distribution": { "name": "startr" } }));
    assert!(court.apply(&wrong, &[]).await.failure().contains("Unknown distribution"));
}

/// Whoever may write objects here must not learn what is in other namespaces.
#[tokio::test]
async fn a_config_map_of_another_namespace_is_seen_only_if_it_is_opened_to_all() {
    let Some(court) = Court::open("config-maps", &[]).await else { return };
    let elsewhere = court.cluster().namespace("elsewhere").await.unwrap();
    let maps: Api<ConfigMap> = elsewhere.all();
    for (name, labels) in [("closed", json!({})), ("open", json!({ "llamastack.io/watch": "true" }))] {
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
    // Only the older version can say it of a configuration; the newer keeps it for the older.
    let config = |name: &str| {
        let config = json!({ "configMapName": name, "configMapNamespace": elsewhere.name() });
        json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution", "metadata": { "name": "old" },
                "spec": { "server": { "distribution": { "name": "starter" }, "userConfig": config } } })
    };
    let dry_run = ["--dry-run=server"];
    let mut told = Vec::new();
    for name in ["closed", "absent"] {
        let said = court.apply(&bundle(name), &dry_run).await.failure();
        let missing = format!("failed to find caBundle ConfigMap {name:?} in namespace {:?}", elsewhere.name());
        assert!(said.contains(&missing), "{said}");
        told.push(said.replace(name, "NAME"));
        let said = court.apply(&config(name), &dry_run).await.failure();
        let place = "spec.server.userConfig.configMapName: failed to find overrideConfig ConfigMap";
        assert!(said.contains(&format!("{place} {name:?} in namespace {:?}", elsewhere.name())), "{said}");
        assert!(said.contains("with the label llamastack.io/watch=true"), "{said}");
    }
    assert_eq!(told[0], told[1], "closed and absent look the same");
    court.apply(&bundle("open"), &dry_run).await.ok();
    court.apply(&config("open"), &dry_run).await.ok();
}
