//! Routes, on clusters that have them: instead of an Ingress, as soon as some router has answered.

use proptest::prelude::*;
use serde_json::json;
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedIngress, ObservedReference, ObservedRoute, Snapshot, plan};
use steersman_reconcile::Outcome;

use super::{an_object, order, written, yaml};

fn exposed(fields: &str, route: ObservedRoute) -> Snapshot {
    Snapshot { route, ..an_object(&format!("{{distribution: {{name: starter}}, networking: {{{fields}}}}}")) }
}

fn admitted() -> ObservedRoute {
    ObservedRoute::Admitted { host: "llama.apps.example.com".into() }
}

/// For laws.
pub fn any_route() -> impl Strategy<Value = ObservedRoute> {
    let refused = ObservedRoute::Refused("no".into());
    prop::sample::select(vec![ObservedRoute::NotServed, ObservedRoute::Unanswered, admitted(), refused])
}

fn ways(seen: &Snapshot) -> Vec<String> {
    let all = order(&plan(seen)).into_iter();
    all.filter(|write| write.contains("Route") || write.contains("Ingress")).collect()
}

fn url(seen: &Snapshot) -> Option<String> {
    llamastack::status(seen, &plan(seen), &Outcome::default()).route_url
}

#[test]
fn a_route_leads_to_the_service_by_the_name_of_its_port() {
    let seen = exposed("port: 9000, expose: {hostname: llama.example.com}", ObservedRoute::Unanswered);
    let route = written(&plan(&seen), "Route").unwrap();
    assert_eq!(route["apiVersion"], "route.openshift.io/v1");
    assert_eq!(route["metadata"]["name"], "starter-route");
    let port = &written(&plan(&seen), "Service").unwrap()["spec"]["ports"][0]["name"];
    assert_eq!(route["spec"]["port"]["targetPort"], *port);
    assert_eq!(
        route["spec"],
        yaml(
            "{host: llama.example.com, to: {kind: Service, name: starter-service}, port: {targetPort: http}, \
             tls: {termination: edge, insecureEdgeTerminationPolicy: Redirect}}"
        )
    );
    let hostless = exposed("expose: true", ObservedRoute::Unanswered);
    assert!(written(&plan(&hostless), "Route").unwrap()["spec"].get("host").is_none(), "the router chooses one");
}

#[test]
fn a_server_with_a_certificate_shows_it_to_the_outside() {
    let mut seen = exposed("expose: true, tls: {enabled: true, secretName: cert}", ObservedRoute::Unanswered);
    let keys = ["tls.crt", "tls.key"].map(str::to_owned);
    seen.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(keys.into()),
        content: None,
    }];
    let route = written(&plan(&seen), "Route").unwrap();
    assert_eq!(route["spec"]["tls"]["termination"], "passthrough");
    assert_eq!(route["spec"]["port"]["targetPort"], "https");
}

/// Where somebody installed the API alone, nobody answers, and an Ingress may be what leads to the server.
#[test]
fn the_ingress_stays_until_a_router_has_answered() {
    let refused = ObservedRoute::Refused("HostAlreadyClaimed: by another".into());
    for (route, expected) in [
        (ObservedRoute::NotServed, vec!["apply Ingress starter-ingress"]),
        (ObservedRoute::Unanswered, vec!["apply Route starter-route", "apply Ingress starter-ingress"]),
        (admitted(), vec!["apply Route starter-route"]),
        (refused, vec!["apply Route starter-route"]),
    ] {
        assert_eq!(ways(&exposed("expose: true", route)), expected);
    }
}

#[test]
fn a_route_goes_when_nobody_asks_for_it_and_is_not_looked_for_elsewhere() {
    let seen = exposed("expose: false", admitted());
    assert_eq!(ways(&seen), [""; 0]);
    let swept = |seen: &Snapshot| plan(seen).prune.iter().any(|kind| kind.kind == "Route");
    assert!(swept(&seen));
    assert!(!swept(&exposed("expose: false", ObservedRoute::NotServed)));
    assert_eq!(url(&seen), None);
}

#[test]
fn the_address_from_outside_is_what_the_router_admitted() {
    let host = "expose: {hostname: llama.example.com}";
    assert_eq!(url(&exposed("expose: true", admitted())).as_deref(), Some("https://llama.apps.example.com"));
    let mut waiting = exposed(host, ObservedRoute::Unanswered);
    assert_eq!(url(&waiting).as_deref(), Some("http://llama.example.com"), "the Ingress serves it");
    waiting.ingress = Some(ObservedIngress { address: Some("1.2.3.4".into()) });
    assert_eq!(url(&waiting).as_deref(), Some("http://1.2.3.4"));
}

#[test]
fn a_route_that_is_refused_is_told_with_the_router_s_words() {
    let seen =
        exposed("expose: {hostname: taken.example.com}", ObservedRoute::Refused("HostAlreadyClaimed: by x".into()));
    let status = llamastack::status(&seen, &plan(&seen), &Outcome::default());
    assert_eq!(status.route_url.as_deref(), Some(""), "nothing leads there");
    let told = json!(status.conditions.unwrap().into_iter().find(|known| known.type_ == "SpecAccepted"));
    assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("RouteRefused")));
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("spec.networking.expose: the router does not admit Route starter-route"), "{message}");
    assert!(message.contains("HostAlreadyClaimed: by x") && message.contains("expose.hostname"), "{message}");
    assert!(plan(&exposed("expose: false", ObservedRoute::Refused("x".into()))).findings.is_empty(), "it goes");
}
