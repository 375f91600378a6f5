//! Where the server keeps its state.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use serde_json::json;

use crate::scene::{Scene, named, starter, vllm};
use crate::world::OPERATOR_IMAGE;

#[tokio::test]
async fn us4_1_tables_are_in_postgres_and_its_password_is_in_no_file() {
    let Some(scene) = Scene::open("us4-1").await else { return };
    scene.secret("db", "dsn", "postgresql://llama:hush-7719@db:5432/llama").await;
    let sql = json!({ "type": "postgres", "connectionString": { "secretKeyRef": { "name": "db", "key": "dsn" } } });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "storage": { "sql": sql } }))).await;
    scene.ready().await;

    let (server, config) = (scene.server().await, scene.config().await);
    let backends = &config["storage"]["backends"];
    let sql = &backends["sql_default"];
    assert_eq!((&sql["type"], &sql["host"]), (&json!("sql_postgres"), &json!("${env.LLSD_STORAGE_SQL_HOST}")));
    assert_eq!(backends["kv_default"]["type"], "kv_sqlite", "the other store is left alone");
    // The parts come from a container that runs before, by a volume in memory.
    assert_eq!(server.init_containers(), ["prepare-storage"]);
    let prepare = &server.pod()["initContainers"][0];
    assert_eq!(prepare["image"], OPERATOR_IMAGE);
    let from = &named(&prepare["env"], "name", "LLSD_STORAGE_SQL_CONNECTION_STRING")["valueFrom"]["secretKeyRef"];
    assert_eq!((&from["name"], &from["key"]), (&json!("db"), &json!("dsn")));
    assert_eq!(server.volume("storage-env")["emptyDir"]["medium"], "Memory");
    assert!(server.command().contains(". /run/steersman/storage.env"), "{}", server.command());
    let maps = scene.all::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    assert!(!json!(maps.items).to_string().contains("hush-7719") && !server.0.to_string().contains("hush-7719"));
}

#[tokio::test]
async fn us4_2_keys_are_in_redis() {
    let Some(scene) = Scene::open("us4-2").await else { return };
    scene.secret("cache", "password", "hush").await;
    let kv = json!({ "type": "redis", "endpoint": "redis://cache:6379",
        "password": { "secretKeyRef": { "name": "cache", "key": "password" } } });
    scene.stack(starter(json!({ "storage": { "kv": kv } }))).await;
    scene.ready().await;
    let (server, config) = (scene.server().await, scene.config().await);
    let backends = &config["storage"]["backends"];
    let expected = json!({ "type": "kv_redis", "host": ":${env.LLSD_STORAGE_KV_PASSWORD}@cache", "port": 6379 });
    assert_eq!(backends["kv_default"], expected);
    assert_eq!(backends["sql_default"]["type"], "sql_sqlite");
    assert_eq!(server.init_containers(), ["prepare-storage"], "a password becomes part of an address there");
}

#[tokio::test]
async fn us4_3_without_storage_it_is_sqlite() {
    let Some(scene) = Scene::open("us4-3").await else { return };
    scene.stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    scene.ready().await;
    let (server, config) = (scene.server().await, scene.config().await);
    for (backend, type_) in [("kv_default", "kv_sqlite"), ("sql_default", "sql_sqlite")] {
        assert_eq!(config["storage"]["backends"][backend]["type"], type_);
    }
    assert!(server.init_containers().is_empty());
}
