//! The attacker sends reviews to the port of the webhooks, to find out which Secrets of the victim exist, and to keep the API
//! server busy with lookups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};
use steersman_testkit::{object, wait};

use crate::tenants::{HostileCase, server};
use crate::webhook_port::{Attack, WebhookPort};

/// Senders of reviews at a time.
const SENDERS: usize = 100;

/// References of each object. As many are looked up.
const REFERENCES: usize = 64;

/// A server that refers to these Secrets.
fn with_secrets(names: impl Iterator<Item = String>) -> Value {
    let provider = |(number, name)| {
        json!({ "id": format!("p{number}"), "provider": "vllm", "endpoint": "http://vllm:8000",
            "apiKey": { "name": name, "key": "token" } })
    };
    let providers: Vec<Value> = names.enumerate().map(provider).collect();
    server("probe", json!({ "distribution": { "name": "starter" }, "providers": { "inference": providers } }))
}

/// A review of a new object in a namespace, as its API server would send it for this user.
fn review(object: &Value, namespace: &str, user: &Value) -> Value {
    let kind = json!({ "group": "llamastack.io", "version": "v1alpha2", "kind": "LlamaStackDistribution" });
    let resource = json!({ "group": "llamastack.io", "version": "v1alpha2", "resource": "llamastackdistributions" });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "name": "probe",
        "namespace": namespace, "operation": "CREATE", "userInfo": user, "object": object, "oldObject": null } })
}

/// The answers are the same for Secrets that exist and for others, and the victim's reviews are answered in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_port_reveals_no_secret() {
    let Some(case) = HostileCase::open("probes").await else { return };
    let secret: Secret = object(json!({ "metadata": { "name": "existing" }, "stringData": { "token": "hush-hush" } }));
    case.victim.namespace.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    let port = WebhookPort::find(&case).await;
    let (attacker, victim) = (case.attacker.name(), case.victim.name().to_owned());
    let own = json!({ "username": format!("system:serviceaccount:{attacker}:tenant"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{attacker}"), "system:authenticated"] });
    for user in
        [own.clone(), json!({}), json!({ "username": "system:anonymous", "groups": ["system:unauthenticated"] })]
    {
        let answer = |name: &str| {
            let probe = review(&with_secrets([name.to_owned()].into_iter()), &victim, &user);
            let (port, name) = (port.clone(), name.to_owned());
            async move {
                let posted = tokio::task::spawn_blocking(move || port.post("/validate/llsd", &probe)).await.unwrap();
                posted.unwrap()["response"].to_string().replace(&name, "NAME")
            }
        };
        let (existing, absent) = (answer("existing").await, answer("absent").await);
        assert_eq!(existing, absent, "{user}");
        assert!(existing.contains("could not be checked for you"), "{existing}");
    }

    let (answers, mut attack) = (Arc::new(AtomicUsize::new(0)), Attack::default());
    let names = |sender: usize| (0..REFERENCES).map(move |number| format!("guess-{sender}-{number}"));
    for sender in 0..SENDERS {
        let (answers, flood) = (answers.clone(), review(&with_secrets(names(sender)), &victim, &own));
        attack.repeat(&port, move |port, _: &mut ()| {
            if port.post("/validate/llsd", &flood).is_ok() {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let is_answered = async || (answers.load(Ordering::Relaxed) >= SENDERS).then_some(());
    wait::eventually("the operator answers the attacker's reviews", is_answered).await.unwrap();
    case.expect_victim_served().await;
    let slowest = case.slowest_review().await;
    println!("the slowest review took {slowest:?}; the attacker got {} answers", answers.load(Ordering::Relaxed));
    // The API server gives up after 10 seconds, so that only an answer in time admits an object.
    assert!(slowest < Duration::from_secs(5), "a review took {slowest:?}");
    assert!(!case.env.operator.log().text().contains("hush-hush"));
}
