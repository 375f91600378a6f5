//! How the server is reached and how many of it there are: a child for each wish, and none without it.

use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedIngress, ObservedReference, Snapshot, plan};
use steersman_reconcile::Outcome;

use super::{an_object, written, yaml};

fn networking(fields: &str) -> Snapshot {
    an_object(&format!("{{distribution: {{name: starter}}, networking: {{{fields}}}}}"))
}

fn workload(fields: &str) -> Snapshot {
    an_object(&format!("{{distribution: {{name: starter}}, workload: {{{fields}}}}}"))
}

fn spec(seen: &Snapshot, kind: &str) -> Value {
    written(&plan(seen), kind).unwrap_or_else(|| panic!("{:?}", plan(seen).findings))["spec"].clone()
}

#[test]
fn what_nobody_asks_for_is_not_made_and_goes_where_it_is() {
    let plan = plan(&an_object("{distribution: {name: starter}}"));
    let kinds =
        ["Service", "Ingress", "NetworkPolicy", "HorizontalPodAutoscaler", "PodDisruptionBudget", "RoleBinding"];
    for kind in kinds {
        assert_eq!(written(&plan, kind), None, "{kind}");
        assert!(plan.prune.iter().any(|swept| swept.kind == kind), "{kind}");
    }
}

#[test]
fn an_exposed_server_gets_an_ingress_and_says_where_it_is() {
    for (expose, host, address, url) in [
        ("true", Value::Null, None, ""),
        ("{}", Value::Null, Some("1.2.3.4"), "http://1.2.3.4"),
        ("{hostname: llama.example.com}", json!("llama.example.com"), None, "http://llama.example.com"),
        ("{hostname: llama.example.com}", json!("llama.example.com"), Some("lb"), "http://lb"),
    ] {
        let mut seen = networking(&format!("port: 9000, expose: {expose}"));
        let mut rule = yaml(
            "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: starter-service, port: \
             {number: 9000}}}}]}",
        );
        if !host.is_null() {
            rule["host"] = host;
        }
        assert_eq!(spec(&seen, "Ingress"), json!({ "rules": [rule] }), "{expose}");
        assert_eq!(spec(&seen, "Service")["ports"][0]["port"], 9000);
        seen.ingress = Some(ObservedIngress { address: address.map(str::to_owned) });
        let status = llamastack::status(&seen, &plan(&seen), &Outcome::default());
        assert_eq!(status.route_url.as_deref(), Some(url), "{expose}");
    }
    for expose in ["false", "{enabled: false}"] {
        assert_eq!(written(&plan(&networking(&format!("expose: {expose}"))), "Ingress"), None, "{expose}");
    }
    assert!(written(&plan(&networking("expose: true")), "Service").is_some(), "it needs a way in");
}

#[test]
fn a_policy_lets_in_who_is_listed() {
    let rule = |allowed: &str| spec(&networking(&format!("port: 9000, allowedFrom: {allowed}")), "NetworkPolicy");
    let own = yaml(
        "[{podSelector: {}}, {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: steersman-system}}}]",
    );
    let routers = yaml("{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: ingress}}}");
    let from = |peers: &[Value]| [own.as_array().unwrap().clone(), peers.to_vec(), vec![routers.clone()]].concat();
    let listed = rule("{namespaces: [a], labels: [team]}");
    assert_eq!(
        listed["podSelector"]["matchLabels"],
        json!({"app": "llama-stack", "app.kubernetes.io/instance": "starter"})
    );
    assert_eq!(listed["policyTypes"], json!(["Ingress"]));
    assert_eq!(listed["ingress"][0]["ports"], json!([{ "port": 9000, "protocol": "TCP" }]));
    let peers = [
        yaml("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}}"),
        yaml("{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}"),
    ];
    assert_eq!(listed["ingress"][0]["from"], json!(from(&peers)));
    assert_eq!(rule("{}")["ingress"][0]["from"], json!(from(&[])));
    assert_eq!(rule("{namespaces: [a, '*']}")["ingress"][0]["from"], yaml("[{namespaceSelector: {}}]"));
}

#[test]
fn a_policy_of_an_earlier_operator_stays() {
    let mut seen = an_object("{distribution: {name: starter}}");
    seen.former_policy = true;
    assert!(plan(&seen).prune.iter().all(|kind| kind.kind != "NetworkPolicy"), "everybody could reach the server");
}

#[test]
fn certificates_reach_the_server_its_probe_and_its_address() {
    let mut seen = networking("tls: {enabled: true, secretName: cert}");
    seen.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let pod = spec(&seen, "Deployment")["template"]["spec"].clone();
    let server = &pod["containers"][0];
    assert_eq!(server["startupProbe"]["httpGet"]["scheme"], "HTTPS");
    let script = server["command"][2].as_str().unwrap();
    let flags = "--ssl-certfile /etc/llama-stack-tls/tls.crt --ssl-keyfile /etc/llama-stack-tls/tls.key";
    assert!(script.trim_end().ends_with(flags), "{script}");
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == "cert"), "{volumes:?}");
    let mount = json!({ "name": "server-certificate", "mountPath": "/etc/llama-stack-tls", "readOnly": true });
    assert!(server["volumeMounts"].as_array().unwrap().contains(&mount));
    let status = llamastack::status(&seen, &plan(&seen), &Outcome::default());
    assert_eq!(status.service_url.as_deref(), Some("https://starter-service.team-a.svc.cluster.local:8321"));
    assert_eq!(spec(&seen, "Service")["ports"][0]["name"], "https");
}

#[test]
fn a_port_that_is_not_the_usual_one_reaches_every_way_of_starting() {
    let env = |seen: &Snapshot| spec(seen, "Deployment")["template"]["spec"]["containers"][0]["env"].to_string();
    assert!(env(&networking("port: 9000")).contains(r#"{"name":"LLAMA_STACK_PORT","value":"9000"}"#));
    assert!(!env(&networking("port: 8321")).contains("LLAMA_STACK_PORT"));
}

#[test]
fn an_autoscaler_has_bounds_and_targets() {
    for (given, bounds, metrics) in [
        ("autoscaling: {maxReplicas: 5}", (1, 5), vec![("cpu", 80)]),
        ("replicas: 2, autoscaling: {minReplicas: 1, maxReplicas: 5}", (2, 5), vec![("cpu", 80)]),
        (
            "autoscaling: {minReplicas: 3, maxReplicas: 5, targetMemoryUtilizationPercentage: 70}",
            (3, 5),
            vec![("memory", 70)],
        ),
        (
            "autoscaling: {maxReplicas: 5, targetMemoryUtilizationPercentage: 70, targetCPUUtilizationPercentage: 60}",
            (1, 5),
            vec![("cpu", 60), ("memory", 70)],
        ),
    ] {
        let found = spec(&workload(given), "HorizontalPodAutoscaler");
        assert_eq!((&found["minReplicas"], &found["maxReplicas"]), (&json!(bounds.0), &json!(bounds.1)), "{given}");
        assert_eq!(found["scaleTargetRef"], json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "starter"}));
        let wanted: Vec<Value> = metrics
            .into_iter()
            .map(|(name, percent)| {
                json!({ "type": "Resource", "resource": { "name": name,
                    "target": { "type": "Utilization", "averageUtilization": percent } } })
            })
            .collect();
        assert_eq!(found["metrics"], json!(wanted), "{given}");
    }
}

#[test]
fn a_budget_is_made_where_one_is_asked_for_or_several_pods_can_run() {
    for (given, expected) in [
        ("replicas: 1", None),
        ("replicas: 2", Some(json!({ "maxUnavailable": 1 }))),
        ("autoscaling: {maxReplicas: 2}", Some(json!({ "maxUnavailable": 1 }))),
        ("podDisruptionBudget: {}", Some(json!({ "maxUnavailable": 1 }))),
        ("podDisruptionBudget: {minAvailable: 50%}", Some(json!({ "minAvailable": "50%" }))),
    ] {
        let found = written(&plan(&workload(given)), "PodDisruptionBudget").map(|budget| {
            let mut spec = budget["spec"].clone();
            spec.as_object_mut().unwrap().remove("selector");
            spec
        });
        assert_eq!(found, expected, "{given}");
    }
}

#[test]
fn the_account_is_bound_only_where_openshift_has_the_role() {
    let mut seen = an_object("{distribution: {name: starter}}");
    seen.any_user = true;
    let binding = written(&plan(&seen), "RoleBinding").unwrap();
    assert_eq!(binding["metadata"]["name"], "starter-rb");
    assert_eq!(binding["roleRef"]["name"], "system:openshift:scc:anyuid");
    assert_eq!(binding["subjects"], json!([{"kind": "ServiceAccount", "name": "starter-sa", "namespace": "team-a"}]));
}
