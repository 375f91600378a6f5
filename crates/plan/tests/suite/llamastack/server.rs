//! The running server: when it is asked, what its answers become, and what the status says while there are none.

use proptest::prelude::*;
use serde_json::{Value, json};
use steersman_api::llamastack::status::{Phase, ProviderHealth, ProviderInfo};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionStatus;
use steersman_plan::llamastack::server::{Question, illness, providers, question, version};
use steersman_plan::llamastack::{ObservedDeployment, ObservedReference, ObservedServer, Snapshot};
use steersman_reconcile::Outcome;

use super::status::{says, told};
use super::{a_deployment, a_settled_object, an_object, settled, stored};

const SERVED: &str = "{server: {distribution: {name: starter}, containerSpec: {port: 9000}}}";
const STARS: &str = "********";

fn provider() -> ProviderInfo {
    ProviderInfo {
        api: "inference".into(),
        provider_id: "vllm".into(),
        provider_type: "remote::vllm".into(),
        config: json!({ "base_url": "http://vllm:8000/v1" }),
        health: ProviderHealth { status: "OK".into(), message: String::new() },
    }
}

fn answered(version: &str) -> ObservedServer {
    ObservedServer::Answered { version: Some(version.into()), providers: Some(vec![provider()]) }
}

fn known_version(status: &LlamaStackDistributionStatus) -> Option<&str> {
    status.version.as_ref()?.llama_stack_server_version.as_deref()
}

fn shown(status: &LlamaStackDistributionStatus) -> Option<&Vec<ProviderInfo>> {
    status.distribution_config.as_ref()?.providers.as_ref()
}

#[test]
fn a_server_is_asked_when_its_pods_are_ready_and_new_and_a_service_leads_to_them() {
    let plain = a_settled_object(SERVED);
    let asked = question(&plain).unwrap();
    let url = "http://starter-service.team-a.svc.cluster.local:9000".to_owned();
    assert_eq!(asked, Question { url, generation: Some(3) });
    let with = |deployment| Snapshot { deployment, ..plain.clone() };
    for (name, seen) in [
        ("no Deployment", with(None)),
        ("no pod ready", with(Some(a_deployment(1, 0)))),
        ("a roll-out under way", with(Some(ObservedDeployment { updated: 0, ..a_deployment(1, 1) }))),
        ("old pods beside new ones", with(Some(ObservedDeployment { pods: 2, ..a_deployment(1, 1) }))),
        (
            "numbers of an earlier generation",
            with(Some(ObservedDeployment { observed_generation: Some(2), ..a_deployment(1, 1) })),
        ),
        ("no Service yet", Snapshot { service: false, ..plain.clone() }),
        ("none wanted", a_settled_object("{server: {distribution: {name: starter}}}")),
        (
            "no pods wanted",
            a_settled_object("{replicas: 0, server: {distribution: {name: starter}, containerSpec: {port: 1}}}"),
        ),
    ] {
        assert_eq!(question(&seen), None, "{name}");
    }
    let mut leaving = plain.clone();
    leaving.object.deleting = true;
    assert_eq!(question(&leaving), None);
    // Where the spec was refused, it does not say where the server is that runs.
    let mut refused = plain.clone();
    refused.object.status.as_mut().unwrap().phase = Some(Phase::Failed);
    assert_eq!(question(&refused), None);
}

#[test]
fn a_server_with_a_certificate_is_asked_by_https_at_the_address_that_the_status_names() {
    let tls = "{distribution: {name: starter}, networking: {port: 8443, tls: {enabled: true, secretName: cert}}}";
    let mut seen = an_object(tls);
    seen.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let seen = settled(seen);
    let url = "https://starter-service.team-a.svc.cluster.local:8443";
    assert_eq!(question(&seen).unwrap().url, url);
    assert_eq!(seen.object.status.unwrap().service_url.as_deref(), Some(url));
}

#[test]
fn the_server_s_own_words_are_passed_on_and_stay_until_it_is_heard_again() {
    let mut seen = Snapshot { server: answered("0.7.2"), ..a_settled_object(SERVED) };
    let answered = told(&seen, &Outcome::default());
    assert_eq!(shown(&answered), Some(&vec![provider()]));
    assert_eq!(known_version(&answered), Some("0.7.2"));
    says(&answered, "HealthCheck", ["True", "HealthCheckPassed", "Health check passed"]);

    // As after a start of the operator.
    seen.object.status = Some(stored(&answered));
    seen.server = ObservedServer::Awaited;
    assert_eq!(told(&seen, &Outcome::default()), stored(&answered), "what it said still counts");

    seen.server = ObservedServer::Silent("GET /v1/providers: timed out".into());
    let silent = told(&seen, &Outcome::default());
    assert_eq!(shown(&silent), None);
    assert_eq!(known_version(&silent), Some("0.7.2"));
    says(&silent, "HealthCheck", ["False", "HealthCheckFailed", "GET /v1/providers: timed out"]);

    seen.object.status = Some(stored(&silent));
    seen.server = ObservedServer::Awaited;
    assert_eq!(told(&seen, &Outcome::default()), stored(&silent), "its silence still counts, too");
}

#[test]
fn pods_that_have_just_become_ready_are_not_called_healthy_before_the_server_was_heard() {
    let mut seen = a_settled_object(SERVED);
    seen.deployment = Some(a_deployment(1, 0));
    let starting = told(&seen, &Outcome::default());
    says(&starting, "HealthCheck", ["False", "HealthCheckFailed", "Deployment not ready"]);
    assert_eq!(shown(&starting), None, "providers of pods that are gone");
    seen.object.status = Some(stored(&starting));
    seen.deployment = Some(a_deployment(1, 1));
    seen.server = ObservedServer::Awaited;
    let pending = ["Unknown", "HealthCheckPending", "The pods are ready; the server is being asked"];
    says(&told(&seen, &Outcome::default()), "HealthCheck", pending);
}

#[test]
fn a_server_that_asks_for_credentials_is_healthy_and_its_providers_are_not_shown() {
    let closed = ObservedServer::Answered { version: None, providers: None };
    let status = told(&Snapshot { server: closed, ..a_settled_object(SERVED) }, &Outcome::default());
    let said =
        "Health check passed. The providers are not shown: the server asks for credentials, and Steersman sends none";
    says(&status, "HealthCheck", ["True", "HealthCheckPassed", said]);
    assert_eq!((shown(&status), known_version(&status)), (None, Some("0.7.1")));
}

#[test]
fn health_and_version_are_read_and_what_is_odd_is_said() {
    assert_eq!(illness(&json!({ "status": "OK", "time": 17 })), None);
    assert_eq!(illness(&json!({ "status": "Error" })).as_deref(), Some("the server calls itself \"Error\""));
    assert_eq!(illness(&json!([])).as_deref(), Some("the answer has no status"));
    assert_eq!(version(&json!({ "version": "0.7.1" })).as_deref(), Some("0.7.1"));
    assert_eq!((version(&json!({ "version": "" })), version(&Value::Null)), (None, None));
    for odd in [json!(null), json!({}), json!({ "data": {} }), json!({ "data": [1] })] {
        assert_eq!(providers(&odd), None, "{odd}");
    }
}

#[test]
fn providers_keep_what_the_status_has_a_place_for_and_nothing_that_moves() {
    let answer = json!({ "data": [
        { "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
          "config": { "base_url": "http://vllm:8000/v1" },
          "health": { "status": "OK", "time": 1.5, "timestamp": "2026-11-15T23:00:00Z" }, "uptime": 3 },
        { "api": "safety", "provider_id": "guard", "provider_type": "inline::llama-guard", "config": null },
    ] });
    let guard = ProviderInfo {
        api: "safety".into(),
        provider_id: "guard".into(),
        provider_type: "inline::llama-guard".into(),
        config: json!({}),
        health: ProviderHealth::default(),
    };
    assert_eq!(providers(&answer), Some(vec![provider(), guard]));
}

/// As llama-stack 0.7.1 answers, word by word.
#[test]
fn a_real_server_s_answer_is_understood() {
    let answer = r#"{"data":[{"api":"inference","provider_id":"vllm","provider_type":"remote::vllm","config":{"base_url":
        "http://127.0.0.1:9/v1","api_token":"********","max_tokens":4096,"tls_verify":true},"health":{"status":
        "Not Implemented","message":"Provider does not implement health check"}},{"api":"tool_runtime","provider_id":
        "tavily-search","provider_type":"remote::tavily-search","config":{"api_key":"********","max_results":3},"health":
        {"status":"Not Implemented","message":"Provider does not implement health check"}}]}"#;
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert_eq!(json!(providers(&answer).unwrap()), answer["data"], "all of it, and nothing else");
}

/// One provider's settings, as the status shows them.
fn masked(config: &Value) -> Value {
    providers(&json!({ "data": [{ "config": config }] })).unwrap().remove(0).config
}

#[test]
fn values_of_names_that_sound_secret_become_stars_and_others_stay() {
    let given = json!({
        "api_key": "abc", "apiToken": "abc", "HF-TOKEN": "abc", "password": 12345, "aws_secret_access_key": "abc",
        "accessKey": "abc", "auth": { "user": "abc", "realm": ["abc"] }, "apikey": true, "private-key": "abc",
        "PGPASSWORD": "abc", "authtoken": "abc", "license_key": "abc", "empty_password": "", "no_token": null, "max_tokens": 512, "tokenizer": "abc", "primary_key": "abc",
        "url": "https://vllm:8000/v1", "nested": { "list": [{ "secret": "abc" }, "abc"] }, "flag": false,
    });
    let want = json!({
        "api_key": STARS, "apiToken": STARS, "HF-TOKEN": STARS, "password": STARS, "aws_secret_access_key": STARS,
        "accessKey": STARS, "auth": { "user": STARS, "realm": [STARS] }, "apikey": STARS, "private-key": STARS,
        "PGPASSWORD": STARS, "authtoken": STARS, "license_key": STARS, "empty_password": "", "no_token": null, "max_tokens": 512, "tokenizer": "abc", "primary_key": "abc",
        "url": "https://vllm:8000/v1", "nested": { "list": [{ "secret": STARS }, "abc"] }, "flag": false,
    });
    assert_eq!(masked(&given), want);
}

#[test]
fn what_is_secret_inside_a_text_becomes_stars_and_the_rest_stays() {
    let told = |text: &str| {
        let answer = json!({ "data": [{ "health": { "status": "Error", "message": text } }] });
        providers(&answer).unwrap().remove(0).health.message
    };
    for (given, want) in [
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
        assert_eq!(told(given), want);
        assert_eq!(masked(&json!({ "note": given })), json!({ "note": want }));
    }
    assert_eq!(told(&"ä".repeat(501)), format!("{}…", "ä".repeat(500)));
}

/// Settings of any depth; what stands under a name that sounds secret says so.
fn settings() -> impl Strategy<Value = Value> {
    let names = || {
        let plain = prop::sample::select(vec!["url", "max_tokens", "model", "a b", "ünïcode", "x=y", "://", ""]);
        let secret = prop::sample::select(vec!["api_key", "apiToken", "PASSWORD", "clientSecret", "hf_token", "Auth"]);
        (plain, secret)
    };
    let odd = || prop_oneof!["\\PC{0,12}", "[a-z=:@/? ]{0,20}", Just("https://a:b@c/d?e=f".to_owned())];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        odd().prop_map(Value::from),
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
    fn nothing_secret_is_shown_and_what_is_shown_stays_as_it_is(given in settings(), text in "\\PC{0,40}") {
        let shown = masked(&json!({ "all": given, "text": text }));
        prop_assert!(!shown.to_string().contains("hush"), "{}", shown);
        prop_assert_eq!(masked(&shown), shown, "masked twice");
    }

    #[test]
    fn any_answer_is_read_or_refused(given in settings()) {
        let answer = json!({ "data": [given], "status": given, "version": given });
        let read = (providers(&answer), illness(&answer), version(&answer));
        prop_assert!(read.0.is_some() == given.is_object() && read.1.is_some() != (given == "OK"));
    }
}
