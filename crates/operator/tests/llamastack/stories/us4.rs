//! User story 4: the storage of the server's state.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use serde_json::json;

use crate::env::OPERATOR_IMAGE;
use crate::test_namespace::{TestNamespace, find_entry, starter, vllm};

#[tokio::test]
async fn us4_1_postgres_password_is_in_no_file() {
    let Some(ns) = TestNamespace::open("us4-1").await else { return };
    ns.apply_secret("db", "dsn", "postgresql://llama:hush-7719@db:5432/llama").await;
    let sql = json!({ "type": "postgres", "connectionString": { "secretKeyRef": { "name": "db", "key": "dsn" } } });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "storage": { "sql": sql } }))).await;
    ns.wait_until_ready().await;

    let (server, config) = (ns.server().await, ns.config().await);
    let backends = &config["storage"]["backends"];
    let sql = &backends["sql_default"];
    assert_eq!((&sql["type"], &sql["host"]), (&json!("sql_postgres"), &json!("${env.LLSD_STORAGE_SQL_HOST}")));
    assert_eq!(backends["kv_default"]["type"], "kv_sqlite", "the other store is unchanged");
    // An init container writes the parts of the connection string to a volume in memory.
    assert_eq!(server.init_containers(), ["prepare-storage"]);
    let prepare = &server.pod_spec()["initContainers"][0];
    assert_eq!(prepare["image"], OPERATOR_IMAGE);
    let from = &find_entry(&prepare["env"], "name", "LLSD_STORAGE_SQL_CONNECTION_STRING")["valueFrom"]["secretKeyRef"];
    assert_eq!((&from["name"], &from["key"]), (&json!("db"), &json!("dsn")));
    assert_eq!(server.volume("storage-env")["emptyDir"]["medium"], "Memory");
    assert!(server.command().contains(". /run/steersman/storage.env"), "{}", server.command());
    let maps = ns.api::<ConfigMap>().list(&ListParams::default()).await.unwrap();
    assert!(!json!(maps.items).to_string().contains("hush-7719") && !server.0.to_string().contains("hush-7719"));
}

#[tokio::test]
async fn us4_2_redis_stores_keys() {
    let Some(ns) = TestNamespace::open("us4-2").await else { return };
    ns.apply_secret("cache", "password", "hush").await;
    let kv = json!({ "type": "redis", "endpoint": "redis://cache:6379",
        "password": { "secretKeyRef": { "name": "cache", "key": "password" } } });
    ns.apply_stack(starter(json!({ "storage": { "kv": kv } }))).await;
    ns.wait_until_ready().await;
    let (server, config) = (ns.server().await, ns.config().await);
    let backends = &config["storage"]["backends"];
    let expected = json!({ "type": "kv_redis", "host": ":${env.LLSD_STORAGE_KV_PASSWORD}@cache", "port": 6379 });
    assert_eq!(backends["kv_default"], expected);
    assert_eq!(backends["sql_default"]["type"], "sql_sqlite");
    assert_eq!(server.init_containers(), ["prepare-storage"], "the init container adds the password to the address");
}

#[tokio::test]
async fn us4_3_default_storage_is_sqlite() {
    let Some(ns) = TestNamespace::open("us4-3").await else { return };
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() } }))).await;
    ns.wait_until_ready().await;
    let (server, config) = (ns.server().await, ns.config().await);
    for (backend, type_) in [("kv_default", "kv_sqlite"), ("sql_default", "sql_sqlite")] {
        assert_eq!(config["storage"]["backends"][backend]["type"], type_);
    }
    assert!(server.init_containers().is_empty());
}
