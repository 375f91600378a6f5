//! The server seen from outside, and what it trusts.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use steersman_testkit::wait;

use crate::scene::{Scene, starter, vllm};

#[tokio::test]
async fn us5_1_exposed_it_has_an_ingress_whose_address_the_cluster_chooses() {
    let Some(scene) = Scene::open("us5-1").await else { return };
    scene.stack(starter(json!({ "networking": { "expose": true } }))).await;
    let object = scene.ready().await;
    let ingress = scene.get::<Ingress>("stack-ingress").await.unwrap();
    let rule = &ingress["spec"]["rules"][0];
    assert!(rule["host"].is_null(), "{rule}");
    let backend = &rule["http"]["paths"][0]["backend"]["service"];
    assert_eq!(*backend, json!({ "name": "stack-service", "port": { "number": 8321 } }));
    assert!(scene.get::<Service>("stack-service").await.is_some(), "what is exposed has a Service");
    assert_eq!(object["status"]["routeURL"], "", "there is no address yet");

    let given = json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } } });
    let ingresses = scene.all::<Ingress>();
    ingresses.patch_status("stack-ingress", &PatchParams::default(), &Patch::Merge(given)).await.unwrap();
    scene.until("the address is told", |object| object["status"]["routeURL"] == "http://lb.example.com").await;
}

#[tokio::test]
async fn us5_2_exposed_by_name_the_ingress_has_it_and_goes_when_it_is_hidden_again() {
    let Some(scene) = Scene::open("us5-2").await else { return };
    scene.stack(starter(json!({ "networking": { "expose": { "hostname": "llama.example.com" } } }))).await;
    let object = scene.ready().await;
    let ingress = scene.get::<Ingress>("stack-ingress").await.unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "llama.example.com", "FR-065");
    assert_eq!(object["status"]["routeURL"], "http://llama.example.com");

    scene.spec(json!({ "networking": { "expose": false } })).await;
    scene.until_gone::<Ingress>("stack-ingress").await;
    scene.until("no address is told", |object| object["status"]["routeURL"].is_null()).await;
}

#[tokio::test]
async fn us5_3_certificates_that_the_server_trusts_are_mounted() {
    let Some(scene) = Scene::open("us5-3").await else { return };
    let certificate = || rcgen::generate_simple_self_signed(vec!["vllm.example.com".to_owned()]).unwrap().cert.pem();
    let (first, second) = (certificate(), certificate());
    scene.config_map("trusted", "ca-bundle.crt", &first).await;
    let tls = json!({ "caBundle": { "configMapName": "trusted" } });
    scene.stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "tls": tls } }))).await;
    scene.ready().await;
    let bundle = async || scene.get::<ConfigMap>("stack-ca-bundle").await.unwrap()["data"]["ca-bundle.crt"].clone();
    assert_eq!(bundle().await.as_str().unwrap().trim(), first.trim());
    let server = scene.server().await;
    assert_eq!(server.volume("ca-bundle")["configMap"]["name"], "stack-ca-bundle");
    assert_eq!(server.mount("ca-bundle")["mountPath"], "/etc/ssl/certs/ca-bundle");
    assert_eq!(server.env("SSL_CERT_FILE")["value"], "/etc/ssl/certs/ca-bundle/ca-bundle.crt");
    assert!(server.annotation("configmap.hash/ca-bundle").is_string(), "another bundle means other pods");

    // Another ConfigMap, other certificates: the pods are made anew. None: nothing is left of them.
    scene.config_map("renewed", "ca-bundle.crt", &second).await;
    scene.spec(json!({ "networking": { "tls": { "caBundle": { "configMapName": "renewed" } } } })).await;
    let renewed = wait::eventually("the new certificates are mounted", async || {
        let now = scene.server().await;
        (now.annotation("configmap.hash/ca-bundle") != server.annotation("configmap.hash/ca-bundle")).then_some(())
    });
    renewed.await.unwrap();
    assert_eq!(bundle().await.as_str().unwrap().trim(), second.trim());
    scene.spec(json!({ "networking": { "tls": null } })).await;
    scene.ready().await;
    assert!(scene.server().await.volume("ca-bundle").is_null());
    scene.until_gone::<ConfigMap>("stack-ca-bundle").await;
}

#[tokio::test]
async fn us5_4_with_a_certificate_it_speaks_https_everywhere() {
    let Some(scene) = Scene::open("us5-4").await else { return };
    let tls = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": { "name": "cert" },
        "stringData": { "tls.crt": "a", "tls.key": "b" } });
    scene.apply(&tls.to_string()).await;
    let tls = json!({ "enabled": true, "secretName": "cert" });
    scene.stack(starter(json!({ "networking": { "port": 8443, "tls": tls } }))).await;
    let object = scene.ready().await;
    let (server, config) = (scene.server().await, scene.config().await);
    assert_eq!(config["server"]["tls_certfile"], "/etc/llama-stack-tls/tls.crt", "FR-061");
    assert_eq!(server.volume("server-certificate")["secret"]["secretName"], "cert", "FR-062");
    assert_eq!(server.mount("server-certificate")["mountPath"], "/etc/llama-stack-tls");
    assert!(server.command().contains("--ssl-certfile /etc/llama-stack-tls/tls.crt"), "{}", server.command());
    let probe = &server.container()["startupProbe"]["httpGet"];
    assert_eq!((&probe["scheme"], &probe["port"]), (&json!("HTTPS"), &json!(8443)));
    let service = scene.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["name"], "https");
    let url = format!("https://stack-service.{}.svc.cluster.local:8443", scene.name());
    assert_eq!(object["status"]["serviceURL"], url.as_str());
}

#[tokio::test]
async fn us5_5_who_may_connect_is_a_network_policy() {
    let Some(scene) = Scene::open("us5-5").await else { return };
    let allowed = json!({ "namespaces": ["apps"], "labels": ["llama/allowed"] });
    scene.stack(starter(json!({ "networking": { "allowedFrom": allowed } }))).await;
    scene.ready().await;
    let policy = scene.get::<NetworkPolicy>("stack-network-policy").await.unwrap();
    let rule = &policy["spec"]["ingress"][0];
    assert_eq!(rule["ports"][0]["port"], 8321);
    let peers = rule["from"].to_string();
    for peer in [r#""kubernetes.io/metadata.name":"apps""#, "llama/allowed", "steersman-system"] {
        assert!(peers.contains(peer), "FR-066: {peer} in {peers}");
    }
    scene.spec(json!({ "networking": { "allowedFrom": { "namespaces": ["*"], "labels": null } } })).await;
    let open = wait::eventually("everybody may connect", async || {
        let policy = scene.get::<NetworkPolicy>("stack-network-policy").await?;
        (policy["spec"]["ingress"][0]["from"] == json!([{ "namespaceSelector": {} }])).then_some(())
    });
    open.await.unwrap();
    scene.spec(json!({ "networking": { "allowedFrom": null } })).await;
    scene.until_gone::<NetworkPolicy>("stack-network-policy").await;
}
