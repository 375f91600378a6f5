//! Routes on OpenShift, which replace the Ingress once a router has answered.

use proptest::prelude::*;
use serde_json::json;
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedIngress, ObservedReference, ObservedRoute, Snapshot, plan};
use steersman_reconcile::Outcome;

use super::{planned_object, v1alpha2_snapshot, write_order, yaml};

fn exposed_snapshot(fields: &str, route: ObservedRoute) -> Snapshot {
    Snapshot { route, ..v1alpha2_snapshot(&format!("{{distribution: {{name: starter}}, networking: {{{fields}}}}}")) }
}

fn admitted_route() -> ObservedRoute {
    ObservedRoute::Admitted { host: "llama.apps.example.com".into() }
}

/// Any state of a Route, for property tests.
pub fn any_route() -> impl Strategy<Value = ObservedRoute> {
    let refused = ObservedRoute::Refused("no".into());
    prop::sample::select(vec![ObservedRoute::NotServed, ObservedRoute::Unanswered, admitted_route(), refused])
}

fn entry_points(snapshot: &Snapshot) -> Vec<String> {
    let all = write_order(&plan(snapshot)).into_iter();
    all.filter(|write| write.contains("Route") || write.contains("Ingress")).collect()
}

fn url(snapshot: &Snapshot) -> Option<String> {
    llamastack::status(snapshot, &plan(snapshot), &Outcome::default()).route_url
}

#[test]
fn route_targets_named_service_port() {
    let snapshot = exposed_snapshot("port: 9000, expose: {hostname: llama.example.com}", ObservedRoute::Unanswered);
    let route = planned_object(&plan(&snapshot), "Route").unwrap();
    assert_eq!(route["apiVersion"], "route.openshift.io/v1");
    assert_eq!(route["metadata"]["name"], "starter-route");
    let port = &planned_object(&plan(&snapshot), "Service").unwrap()["spec"]["ports"][0]["name"];
    assert_eq!(route["spec"]["port"]["targetPort"], *port);
    assert_eq!(
        route["spec"],
        yaml(
            "{host: llama.example.com, to: {kind: Service, name: starter-service}, port: {targetPort: http}, \
             tls: {termination: edge, insecureEdgeTerminationPolicy: Redirect}}"
        )
    );
    let hostless = exposed_snapshot("expose: true", ObservedRoute::Unanswered);
    assert!(
        planned_object(&plan(&hostless), "Route").unwrap()["spec"].get("host").is_none(),
        "the router chooses the host"
    );
}

#[test]
fn tls_server_gets_passthrough_route() {
    let mut snapshot =
        exposed_snapshot("expose: true, tls: {enabled: true, secretName: cert}", ObservedRoute::Unanswered);
    let keys = ["tls.crt", "tls.key"].map(str::to_owned);
    snapshot.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(keys.into()),
        content: None,
    }];
    let route = planned_object(&plan(&snapshot), "Route").unwrap();
    assert_eq!(route["spec"]["tls"]["termination"], "passthrough");
    assert_eq!(route["spec"]["port"]["targetPort"], "https");
}

/// A cluster may serve the Route API without a router, so that only the Ingress leads to the server.
#[test]
fn ingress_stays_until_router_answers() {
    let refused = ObservedRoute::Refused("HostAlreadyClaimed: by another".into());
    for (route, expected) in [
        (ObservedRoute::NotServed, vec!["apply Ingress starter-ingress"]),
        (ObservedRoute::Unanswered, vec!["apply Route starter-route", "apply Ingress starter-ingress"]),
        (admitted_route(), vec!["apply Route starter-route"]),
        (refused, vec!["apply Route starter-route"]),
    ] {
        assert_eq!(entry_points(&exposed_snapshot("expose: true", route)), expected);
    }
}

#[test]
fn unexposed_route_is_pruned_if_served() {
    let snapshot = exposed_snapshot("expose: false", admitted_route());
    assert_eq!(entry_points(&snapshot), [""; 0]);
    let prunes_route = |snapshot: &Snapshot| plan(snapshot).prune.iter().any(|kind| kind.kind == "Route");
    assert!(prunes_route(&snapshot));
    assert!(!prunes_route(&exposed_snapshot("expose: false", ObservedRoute::NotServed)));
    assert_eq!(url(&snapshot), None);
}

#[test]
fn route_url_is_the_admitted_host() {
    let host = "expose: {hostname: llama.example.com}";
    assert_eq!(
        url(&exposed_snapshot("expose: true", admitted_route())).as_deref(),
        Some("https://llama.apps.example.com")
    );
    let mut unanswered = exposed_snapshot(host, ObservedRoute::Unanswered);
    assert_eq!(url(&unanswered).as_deref(), Some("http://llama.example.com"), "the Ingress serves the host");
    unanswered.ingress = Some(ObservedIngress { address: Some("1.2.3.4".into()) });
    assert_eq!(url(&unanswered).as_deref(), Some("http://1.2.3.4"));
}

#[test]
fn refused_route_is_reported_with_cause() {
    let snapshot = exposed_snapshot(
        "expose: {hostname: taken.example.com}",
        ObservedRoute::Refused("HostAlreadyClaimed: by x".into()),
    );
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    assert_eq!(status.route_url.as_deref(), Some(""), "a refused Route has no URL");
    let spec_accepted = json!(status.conditions.unwrap().into_iter().find(|known| known.type_ == "SpecAccepted"));
    assert_eq!((&spec_accepted["status"], &spec_accepted["reason"]), (&json!("True"), &json!("RouteRefused")));
    let message = spec_accepted["message"].as_str().unwrap();
    assert!(message.starts_with("spec.networking.expose: the router does not admit Route starter-route"), "{message}");
    assert!(message.contains("HostAlreadyClaimed: by x") && message.contains("expose.hostname"), "{message}");
    assert!(
        plan(&exposed_snapshot("expose: false", ObservedRoute::Refused("x".into()))).findings.is_empty(),
        "the Route is removed"
    );
}
