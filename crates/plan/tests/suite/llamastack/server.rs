//! Queries to the running server: when they are sent, and how the answers appear in the status.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::llamastack::status::{Phase, ProviderHealth, ProviderInfo};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_plan::llamastack::server::{PollTarget, health_problem, poll_target, providers, version};
use steersman_plan::llamastack::{ObservedDeployment, ObservedReference, ObservedServer, Snapshot};
use steersman_reconcile::Outcome;

use super::status::{assert_condition, render_status};
use super::{observed_deployment, settle, settled_snapshot, stored_status, v1alpha2_snapshot};

const SPEC_WITH_PORT: &str = "{server: {distribution: {name: starter}, containerSpec: {port: 9000}}}";
const MASK: &str = "********";

fn provider() -> ProviderInfo {
    ProviderInfo {
        api: "inference".into(),
        provider_id: "vllm".into(),
        provider_type: "remote::vllm".into(),
        config: json!({ "base_url": "http://vllm:8000/v1" }),
        health: ProviderHealth { status: "OK".into(), message: String::new() },
    }
}

fn server_answer(version: &str) -> ObservedServer {
    ObservedServer::Answered { version: Some(version.into()), providers: Some(vec![provider()]) }
}

fn server_version(status: &LlamaStackDistributionStatus) -> Option<&str> {
    status.version.as_ref()?.llama_stack_server_version.as_deref()
}

fn status_providers(status: &LlamaStackDistributionStatus) -> Option<&Vec<ProviderInfo>> {
    status.distribution_config.as_ref()?.providers.as_ref()
}

#[test]
fn server_is_queried_once_fully_rolled_out() {
    let plain = settled_snapshot(SPEC_WITH_PORT);
    let query = poll_target(&plain).unwrap();
    let url = "http://starter-service.team-a.svc.cluster.local:9000".to_owned();
    assert_eq!(query, PollTarget { url, generation: Some(3) });
    let with_deployment = |deployment| Snapshot { deployment, ..plain.clone() };
    for (name, snapshot) in [
        ("no Deployment", with_deployment(None)),
        ("no pod ready", with_deployment(Some(observed_deployment(1, 0)))),
        ("a roll-out under way", with_deployment(Some(ObservedDeployment { updated: 0, ..observed_deployment(1, 1) }))),
        (
            "old pods next to new ones",
            with_deployment(Some(ObservedDeployment { pods: 2, ..observed_deployment(1, 1) })),
        ),
        (
            "numbers of an earlier generation",
            with_deployment(Some(ObservedDeployment { observed_generation: Some(2), ..observed_deployment(1, 1) })),
        ),
        ("no Service yet", Snapshot { service: false, ..plain.clone() }),
        (
            "no pods wanted",
            settled_snapshot("{replicas: 0, server: {distribution: {name: starter}, containerSpec: {port: 1}}}"),
        ),
    ] {
        assert_eq!(poll_target(&snapshot), None, "{name}");
    }
    let mut deleting = plain.clone();
    deleting.object.deleting = true;
    assert_eq!(poll_target(&deleting), None);
    // A rejected spec does not describe the address of the running server.
    let mut rejected_spec = plain.clone();
    rejected_spec.object.status.as_mut().unwrap().phase = Some(Phase::Failed);
    assert_eq!(poll_target(&rejected_spec), None);
}

#[test]
fn tls_server_is_queried_by_https() {
    let tls = "{distribution: {name: starter}, networking: {port: 8443, tls: {enabled: true, secretName: cert}}}";
    let mut snapshot = v1alpha2_snapshot(tls);
    snapshot.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let snapshot = settle(snapshot);
    let url = "https://starter-service.team-a.svc.cluster.local:8443";
    assert_eq!(poll_target(&snapshot).unwrap().url, url);
    assert_eq!(snapshot.object.status.unwrap().service_url.as_deref(), Some(url));
}

#[test]
fn server_answer_stays_until_next_answer() {
    let mut snapshot = Snapshot { server: server_answer("0.7.2"), ..settled_snapshot(SPEC_WITH_PORT) };
    let answered = render_status(&snapshot, &Outcome::default());
    assert_eq!(status_providers(&answered), Some(&vec![provider()]));
    assert_eq!(server_version(&answered), Some("0.7.2"));
    assert_condition(&answered, "HealthCheck", ["True", "HealthCheckPassed", "Health check passed"]);

    // The answer is awaited after a start of the operator.
    snapshot.object.status = Some(stored_status(&answered));
    snapshot.server = ObservedServer::Pending;
    assert_eq!(render_status(&snapshot, &Outcome::default()), stored_status(&answered), "the last answer is kept");

    snapshot.server = ObservedServer::Failed("GET /v1/providers: timed out".into());
    let silent_status = render_status(&snapshot, &Outcome::default());
    assert_eq!(status_providers(&silent_status), None);
    assert_eq!(server_version(&silent_status), Some("0.7.2"));
    assert_condition(&silent_status, "HealthCheck", ["False", "HealthCheckFailed", "GET /v1/providers: timed out"]);

    snapshot.object.status = Some(stored_status(&silent_status));
    snapshot.server = ObservedServer::Pending;
    assert_eq!(
        render_status(&snapshot, &Outcome::default()),
        stored_status(&silent_status),
        "the failed query is kept"
    );
}

#[test]
fn health_is_unknown_until_server_answers() {
    let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
    snapshot.deployment = Some(observed_deployment(1, 0));
    let starting = render_status(&snapshot, &Outcome::default());
    assert_condition(&starting, "HealthCheck", ["False", "HealthCheckFailed", "Deployment not ready"]);
    assert_eq!(status_providers(&starting), None, "providers of deleted pods are removed");
    snapshot.object.status = Some(stored_status(&starting));
    snapshot.deployment = Some(observed_deployment(1, 1));
    snapshot.server = ObservedServer::Pending;
    let pending =
        ["Unknown", "HealthCheckPending", "The pods are ready; the first health check of the server is pending"];
    assert_condition(&render_status(&snapshot, &Outcome::default()), "HealthCheck", pending);
}

#[test]
fn authenticated_server_is_healthy_without_providers() {
    let authenticated = ObservedServer::Answered { version: None, providers: None };
    let status =
        render_status(&Snapshot { server: authenticated, ..settled_snapshot(SPEC_WITH_PORT) }, &Outcome::default());
    let message =
        "Health check passed. The providers are unknown: the server requires credentials, and Steersman sends none";
    assert_condition(&status, "HealthCheck", ["True", "HealthCheckPassed", message]);
    assert_eq!((status_providers(&status), server_version(&status)), (None, Some("0.7.1")));
}

#[test]
fn health_and_version_tolerate_odd_answers() {
    assert_eq!(health_problem(&json!({ "status": "OK", "time": 17 })), None);
    assert_eq!(
        health_problem(&json!({ "status": "Error" })).as_deref(),
        Some("the server reports the status \"Error\"")
    );
    assert_eq!(health_problem(&json!([])).as_deref(), Some("the response has no status"));
    assert_eq!(version(&json!({ "version": "0.7.1" })).as_deref(), Some("0.7.1"));
    assert_eq!((version(&json!({ "version": "" })), version(&Value::Null)), (None, None));
    for odd_answer in [json!(null), json!({}), json!({ "data": {} }), json!({ "data": [1] })] {
        assert_eq!(providers(&odd_answer), None, "{odd_answer}");
    }
}

#[test]
fn providers_keep_only_stable_status_fields() {
    let answer = json!({ "data": [
        { "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
          "config": { "base_url": "http://vllm:8000/v1" },
          "health": { "status": "OK", "time": 1.5, "timestamp": "2026-11-15T23:00:00Z" }, "uptime": 3 },
        { "api": "safety", "provider_id": "guard", "provider_type": "inline::llama-guard", "config": null },
    ] });
    let safety_provider = ProviderInfo {
        api: "safety".into(),
        provider_id: "guard".into(),
        provider_type: "inline::llama-guard".into(),
        config: json!({}),
        health: ProviderHealth::default(),
    };
    assert_eq!(providers(&answer), Some(vec![provider(), safety_provider]));
}

/// An answer of llama-stack 0.7.1.
#[test]
fn real_server_answer_is_decoded() {
    let answer = r#"{"data":[{"api":"inference","provider_id":"vllm","provider_type":"remote::vllm","config":{"base_url":
        "http://127.0.0.1:9/v1","api_token":"********","max_tokens":4096,"tls_verify":true},"health":{"status":
        "Not Implemented","message":"Provider does not implement health check"}},{"api":"tool_runtime","provider_id":
        "tavily-search","provider_type":"remote::tavily-search","config":{"api_key":"********","max_results":3},"health":
        {"status":"Not Implemented","message":"Provider does not implement health check"}}]}"#;
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(json!(providers(&answer).unwrap()), answer["data"], "every field is kept");
}

/// The settings of one provider as shown in the status.
fn mask_config(config: &Value) -> Value {
    providers(&json!({ "data": [{ "config": config }] })).unwrap().remove(0).config
}

#[test]
fn secret_sounding_fields_are_masked() {
    let settings = json!({
        "api_key": "abc", "apiToken": "abc", "HF-TOKEN": "abc", "password": 12345, "aws_secret_access_key": "abc",
        "accessKey": "abc", "auth": { "user": "abc", "realm": ["abc"] }, "apikey": true, "private-key": "abc",
        "PGPASSWORD": "abc", "authtoken": "abc", "license_key": "abc", "empty_password": "", "no_token": null, "max_tokens": 512, "tokenizer": "abc", "primary_key": "abc",
        "url": "https://vllm:8000/v1", "nested": { "list": [{ "secret": "abc" }, "abc"] }, "flag": false,
    });
    let want = json!({
        "api_key": MASK, "apiToken": MASK, "HF-TOKEN": MASK, "password": MASK, "aws_secret_access_key": MASK,
        "accessKey": MASK, "auth": { "user": MASK, "realm": [MASK] }, "apikey": MASK, "private-key": MASK,
        "PGPASSWORD": MASK, "authtoken": MASK, "license_key": MASK, "empty_password": "", "no_token": null, "max_tokens": 512, "tokenizer": "abc", "primary_key": "abc",
        "url": "https://vllm:8000/v1", "nested": { "list": [{ "secret": MASK }, "abc"] }, "flag": false,
    });
    assert_eq!(mask_config(&settings), want);
}

#[test]
fn secrets_inside_texts_are_masked() {
    let masked_message = |text: &str| {
        let answer = json!({ "data": [{ "health": { "status": "Error", "message": text } }] });
        providers(&answer).unwrap().remove(0).health.message
    };
    for (settings, want) in [
        ("all is well (so far)", "all is well (so far)"),
        ("postgresql://me:hush@db:5432/x", "postgresql://********@db:5432/x"),
        ("see https://x/y?a=1&api_key=hush&b=2.", "see https://x/y?a=1&api_key=********&b=2."),
        ("host=db password=hush dbname=x", "host=db password=******** dbname=x"),
        ("Incorrect API key provided: sk-proj-1234567890", "Incorrect API key provided: ********"),
        ("header 'Authorization: Bearer hush'", "header 'Authorization: ******** ********'"),
        (r#"{"api_key": "hush", "a": "b"}"#, r#"{"api_key": "********", "a": "b"}"#),
        ("tried key=sk-proj-1234567890 (401)", "tried key=******** (401)"),
        ("<Client object at 0x7f01deadbeef>", "<Client object at 0x…>"),
        ("0x10", "0x10"),
    ] {
        assert_eq!(masked_message(settings), want);
        assert_eq!(mask_config(&json!({ "note": settings })), json!({ "note": want }));
    }
    assert_eq!(masked_message(&"ä".repeat(501)), format!("{}…", "ä".repeat(500)));
}

/// Nested settings in which every value under a secret-sounding name contains `hush`.
fn any_settings() -> impl Strategy<Value = Value> {
    let names = || {
        let plain = prop::sample::select(vec!["url", "max_tokens", "model", "a b", "ünïcode", "x=y", "://", ""]);
        let secret = prop::sample::select(vec!["api_key", "apiToken", "PASSWORD", "clientSecret", "hf_token", "Auth"]);
        (plain, secret)
    };
    let odd_text = || prop_oneof!["\\PC{0,12}", "[a-z=:@/? ]{0,20}", Just("https://a:b@c/d?e=f".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        odd_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let (plain, secret) = names();
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            (plain, inner, secret, "[a-z]{0,3}").prop_map(|(plain, inner, secret, end)| {
                json!({ plain: inner, secret: format!("hush{end}"), "note": format!("{secret}=hush{end} it is") })
            }),
        ]
    })
}

proptest! {
    #[test]
    fn masking_hides_secrets_and_is_idempotent(settings in any_settings(), text in "\\PC{0,40}") {
        let masked_config = mask_config(&json!({ "all": settings, "text": text }));
        prop_assert!(!masked_config.to_string().contains("hush"), "{}", masked_config);
        prop_assert_eq!(mask_config(&masked_config), masked_config, "masking is idempotent");
    }

    #[test]
    fn any_answer_is_decoded_or_rejected(settings in any_settings()) {
        let answer = json!({ "data": [settings], "status": settings, "version": settings });
        let read = (providers(&answer), health_problem(&answer), version(&answer));
        prop_assert!(read.0.is_some() == settings.is_object() && read.1.is_some() != (settings == "OK"));
    }
}

#[test]
fn unhealthy_server_is_not_ready() {
    let mut snapshot = settled_snapshot(SPEC_WITH_PORT);
    snapshot.server = ObservedServer::Unhealthy("GET /v1/health: timed out".into());
    let unhealthy = render_status(&snapshot, &Outcome::default());
    assert_eq!(unhealthy.phase, Some(Phase::Initializing));
    assert_condition(&unhealthy, "DeploymentReady", ["True", "DeploymentReady", "Deployment is ready"]);
    assert_condition(&unhealthy, "HealthCheck", ["False", "HealthCheckFailed", "GET /v1/health: timed out"]);
    snapshot.object.status = Some(stored_status(&unhealthy));
    assert!(poll_target(&snapshot).is_some(), "the server is queried again");

    snapshot.server = ObservedServer::Pending;
    assert_eq!(render_status(&snapshot, &Outcome::default()), stored_status(&unhealthy), "the last answer is kept");
    snapshot.server = ObservedServer::Failed("the name cannot be resolved".into());
    let unreached = render_status(&snapshot, &Outcome::default());
    assert_eq!(unreached.phase, Some(Phase::Ready), "the operator's own network may be at fault");
    snapshot.server = ObservedServer::Unhealthy("timed out".into());
    snapshot.deployment = Some(observed_deployment(0, 0));
    snapshot.object.spec.workload.get_or_insert_default().replicas = Some(0);
    assert_eq!(render_status(&snapshot, &Outcome::default()).phase, Some(Phase::Ready), "no server is wanted");
}
