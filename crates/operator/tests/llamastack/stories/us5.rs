//! User story 5: access to the server from outside, and the certificates that it trusts.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use steersman_testkit::wait;

use crate::test_namespace::{TestNamespace, starter, vllm};

#[tokio::test]
async fn us5_1_expose_creates_ingress_without_host() {
    let Some(ns) = TestNamespace::open("us5-1").await else { return };
    ns.apply_stack(starter(json!({ "networking": { "expose": true } }))).await;
    let object = ns.wait_until_ready().await;
    let ingress = ns.get::<Ingress>("stack-ingress").await.unwrap();
    let rule = &ingress["spec"]["rules"][0];
    assert!(rule["host"].is_null(), "{rule}");
    let backend = &rule["http"]["paths"][0]["backend"]["service"];
    assert_eq!(*backend, json!({ "name": "stack-service", "port": { "number": 8321 } }));
    assert!(ns.get::<Service>("stack-service").await.is_some(), "an exposed server has a Service");
    assert_eq!(object["status"]["routeURL"], "", "the Ingress has no address yet");

    let address = json!({ "status": { "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } } });
    let ingresses = ns.api::<Ingress>();
    ingresses.patch_status("stack-ingress", &PatchParams::default(), &Patch::Merge(address)).await.unwrap();
    ns.wait_for("the address is reported", |object| object["status"]["routeURL"] == "http://lb.example.com").await;
}

#[tokio::test]
async fn us5_2_hostname_is_set_on_ingress() {
    let Some(ns) = TestNamespace::open("us5-2").await else { return };
    ns.apply_stack(starter(json!({ "networking": { "expose": { "hostname": "llama.example.com" } } }))).await;
    let object = ns.wait_until_ready().await;
    let ingress = ns.get::<Ingress>("stack-ingress").await.unwrap();
    assert_eq!(ingress["spec"]["rules"][0]["host"], "llama.example.com", "FR-065");
    assert_eq!(object["status"]["routeURL"], "http://llama.example.com");

    ns.patch_spec(json!({ "networking": { "expose": false } })).await;
    ns.wait_until_deleted::<Ingress>("stack-ingress").await;
    ns.wait_for("the address is removed", |object| object["status"]["routeURL"].is_null()).await;
}

#[tokio::test]
async fn us5_3_ca_bundle_is_mounted() {
    let Some(ns) = TestNamespace::open("us5-3").await else { return };
    let certificate = || rcgen::generate_simple_self_signed(vec!["vllm.example.com".to_owned()]).unwrap().cert.pem();
    let (first, second) = (certificate(), certificate());
    ns.apply_config_map("trusted", "ca-bundle.crt", &first).await;
    let tls = json!({ "caBundle": { "configMapName": "trusted" } });
    ns.apply_stack(starter(json!({ "providers": { "inference": vllm() }, "networking": { "tls": tls } }))).await;
    ns.wait_until_ready().await;
    let bundle = async || ns.get::<ConfigMap>("stack-ca-bundle").await.unwrap()["data"]["ca-bundle.crt"].clone();
    assert_eq!(bundle().await.as_str().unwrap().trim(), first.trim());
    let server = ns.server().await;
    assert_eq!(server.volume("ca-bundle")["configMap"]["name"], "stack-ca-bundle");
    assert_eq!(server.mount("ca-bundle")["mountPath"], "/etc/ssl/certs/ca-bundle");
    assert_eq!(server.env("SSL_CERT_FILE")["value"], "/etc/ssl/certs/ca-bundle/ca-bundle.crt");
    assert!(server.annotation("configmap.hash/ca-bundle").is_string(), "a new bundle restarts the pods");

    // Another ConfigMap with other certificates restarts the pods. Without one, volume and copy are removed.
    ns.apply_config_map("renewed", "ca-bundle.crt", &second).await;
    ns.patch_spec(json!({ "networking": { "tls": { "caBundle": { "configMapName": "renewed" } } } })).await;
    let renewed = wait::eventually("the new certificates are mounted", async || {
        let now = ns.server().await;
        (now.annotation("configmap.hash/ca-bundle") != server.annotation("configmap.hash/ca-bundle")).then_some(())
    });
    renewed.await.unwrap();
    assert_eq!(bundle().await.as_str().unwrap().trim(), second.trim());
    ns.patch_spec(json!({ "networking": { "tls": null } })).await;
    ns.wait_until_ready().await;
    assert!(ns.server().await.volume("ca-bundle").is_null());
    ns.wait_until_deleted::<ConfigMap>("stack-ca-bundle").await;
}

#[tokio::test]
async fn us5_4_certificate_enables_https_everywhere() {
    let Some(ns) = TestNamespace::open("us5-4").await else { return };
    let tls = json!({ "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": { "name": "cert" },
        "stringData": { "tls.crt": "a", "tls.key": "b" } });
    ns.apply(&tls.to_string()).await;
    let tls = json!({ "enabled": true, "secretName": "cert" });
    ns.apply_stack(starter(json!({ "networking": { "port": 8443, "tls": tls } }))).await;
    let object = ns.wait_until_ready().await;
    let (server, config) = (ns.server().await, ns.config().await);
    assert_eq!(config["server"]["tls_certfile"], "/etc/llama-stack-tls/tls.crt", "FR-061");
    assert_eq!(server.volume("server-certificate")["secret"]["secretName"], "cert", "FR-062");
    assert_eq!(server.mount("server-certificate")["mountPath"], "/etc/llama-stack-tls");
    assert!(server.command().contains("--ssl-certfile /etc/llama-stack-tls/tls.crt"), "{}", server.command());
    let probe = &server.container()["startupProbe"]["httpGet"];
    assert_eq!((&probe["scheme"], &probe["port"]), (&json!("HTTPS"), &json!(8443)));
    let service = ns.get::<Service>("stack-service").await.unwrap();
    assert_eq!(service["spec"]["ports"][0]["name"], "https");
    let url = format!("https://stack-service.{}.svc.cluster.local:8443", ns.name());
    assert_eq!(object["status"]["serviceURL"], url.as_str());
}

#[tokio::test]
async fn us5_5_allowed_from_creates_network_policy() {
    let Some(ns) = TestNamespace::open("us5-5").await else { return };
    let allowed = json!({ "namespaces": ["apps"], "labels": ["llama/allowed"] });
    ns.apply_stack(starter(json!({ "networking": { "allowedFrom": allowed } }))).await;
    ns.wait_until_ready().await;
    let policy = ns.get::<NetworkPolicy>("stack-network-policy").await.unwrap();
    let rule = &policy["spec"]["ingress"][0];
    assert_eq!(rule["ports"][0]["port"], 8321);
    let peers = rule["from"].to_string();
    for peer in [r#""kubernetes.io/metadata.name":"apps""#, "llama/allowed", "steersman-system"] {
        assert!(peers.contains(peer), "FR-066: {peer} in {peers}");
    }
    ns.patch_spec(json!({ "networking": { "allowedFrom": { "namespaces": ["*"], "labels": null } } })).await;
    let open = wait::eventually("all namespaces may connect", async || {
        let policy = ns.get::<NetworkPolicy>("stack-network-policy").await?;
        (policy["spec"]["ingress"][0]["from"] == json!([{ "namespaceSelector": {} }])).then_some(())
    });
    open.await.unwrap();
    ns.patch_spec(json!({ "networking": { "allowedFrom": null } })).await;
    ns.wait_until_deleted::<NetworkPolicy>("stack-network-policy").await;
}
