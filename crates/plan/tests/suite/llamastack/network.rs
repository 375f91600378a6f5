//! Optional children for networking and scaling: each exists only if the spec asks for it.

use serde_json::{Value, json};
use steersman_plan::llamastack;
use steersman_plan::llamastack::{ObservedIngress, ObservedReference, ObservedRoute, Snapshot, plan};
use steersman_reconcile::Outcome;

use super::{planned_object, v1alpha2_snapshot, yaml};

fn networking(fields: &str) -> Snapshot {
    v1alpha2_snapshot(&format!("{{distribution: {{name: starter}}, networking: {{{fields}}}}}"))
}

fn workload(fields: &str) -> Snapshot {
    v1alpha2_snapshot(&format!("{{distribution: {{name: starter}}, workload: {{{fields}}}}}"))
}

fn child_spec(snapshot: &Snapshot, kind: &str) -> Value {
    planned_object(&plan(snapshot), kind).unwrap_or_else(|| panic!("{:?}", plan(snapshot).findings))["spec"].clone()
}

#[test]
fn optional_children_are_pruned_by_default() {
    let plan = plan(&v1alpha2_snapshot("{distribution: {name: starter}}"));
    for kind in ["Ingress", "NetworkPolicy", "HorizontalPodAutoscaler", "PodDisruptionBudget"] {
        assert_eq!(planned_object(&plan, kind), None, "{kind}");
        assert!(plan.prune.iter().any(|pruned| pruned.kind == kind), "{kind}");
    }
}

#[test]
fn exposed_server_gets_ingress_and_url() {
    for (expose, host, address, url) in [
        ("true", Value::Null, None, ""),
        ("{}", Value::Null, Some("1.2.3.4"), "http://1.2.3.4"),
        ("{hostname: llama.example.com}", json!("llama.example.com"), None, "http://llama.example.com"),
        ("{hostname: llama.example.com}", json!("llama.example.com"), Some("lb"), "http://lb"),
    ] {
        let mut snapshot = networking(&format!("port: 9000, expose: {expose}"));
        let mut rule = yaml(
            "http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: starter-service, port: \
             {number: 9000}}}}]}",
        );
        if !host.is_null() {
            rule["host"] = host;
        }
        assert_eq!(child_spec(&snapshot, "Ingress"), json!({ "rules": [rule] }), "{expose}");
        assert_eq!(child_spec(&snapshot, "Service")["ports"][0]["port"], 9000);
        snapshot.ingress = Some(ObservedIngress { address: address.map(str::to_owned) });
        let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
        assert_eq!(status.route_url.as_deref(), Some(url), "{expose}");
    }
    for expose in ["false", "{enabled: false}"] {
        assert_eq!(planned_object(&plan(&networking(&format!("expose: {expose}"))), "Ingress"), None, "{expose}");
    }
    assert!(
        planned_object(&plan(&networking("expose: true")), "Service").is_some(),
        "an exposed server needs a Service"
    );
}

#[test]
fn network_policy_allows_listed_namespaces() {
    let rule = |allowed: &str| child_spec(&networking(&format!("port: 9000, allowedFrom: {allowed}")), "NetworkPolicy");
    let own = yaml(
        "[{podSelector: {}}, {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: steersman-system}}}]",
    );
    let routers = yaml("{namespaceSelector: {matchLabels: {network.openshift.io/policy-group: ingress}}}");
    let from = |peers: &[Value]| [own.as_array().unwrap().clone(), peers.to_vec(), vec![routers.clone()]].concat();
    let allowed = rule("{namespaces: [a], labels: [team]}");
    assert_eq!(
        allowed["podSelector"]["matchLabels"],
        json!({"app": "llama-stack", "app.kubernetes.io/instance": "starter"})
    );
    assert_eq!(allowed["policyTypes"], json!(["Ingress"]));
    assert_eq!(allowed["ingress"][0]["ports"], json!([{ "port": 9000, "protocol": "TCP" }]));
    let peers = [
        yaml("{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: a}}}"),
        yaml("{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}"),
    ];
    assert_eq!(allowed["ingress"][0]["from"], json!(from(&peers)));
    assert_eq!(rule("{}")["ingress"][0]["from"], json!(from(&[])));
    assert_eq!(rule("{namespaces: [a, '*']}")["ingress"][0]["from"], yaml("[{namespaceSelector: {}}]"));
}

#[test]
fn legacy_network_policy_is_kept() {
    let mut snapshot = v1alpha2_snapshot("{distribution: {name: starter}}");
    snapshot.has_legacy_policy = true;
    assert!(
        plan(&snapshot).prune.iter().all(|kind| kind.kind != "NetworkPolicy"),
        "without the policy every pod could reach the server"
    );
}

#[test]
fn tls_reaches_server_probe_and_url() {
    let mut snapshot = networking("tls: {enabled: true, secretName: cert}");
    snapshot.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let pod = child_spec(&snapshot, "Deployment")["template"]["spec"].clone();
    let server = &pod["containers"][0];
    assert_eq!(server["startupProbe"]["httpGet"]["scheme"], "HTTPS");
    let script = server["command"][2].as_str().unwrap();
    let flags = "--ssl-certfile /etc/llama-stack-tls/tls.crt --ssl-keyfile /etc/llama-stack-tls/tls.key";
    assert!(script.trim_end().ends_with(flags), "{script}");
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().any(|volume| volume["secret"]["secretName"] == "cert"), "{volumes:?}");
    let mount = json!({ "name": "server-certificate", "mountPath": "/etc/llama-stack-tls", "readOnly": true });
    assert!(server["volumeMounts"].as_array().unwrap().contains(&mount));
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    assert_eq!(status.service_url.as_deref(), Some("https://starter-service.team-a.svc.cluster.local:8321"));
    assert_eq!(child_spec(&snapshot, "Service")["ports"][0]["name"], "https");
}

#[test]
fn custom_port_sets_server_port_variable() {
    let env = |snapshot: &Snapshot| {
        child_spec(snapshot, "Deployment")["template"]["spec"]["containers"][0]["env"].to_string()
    };
    assert!(env(&networking("port: 9000")).contains(r#"{"name":"LLAMA_STACK_PORT","value":"9000"}"#));
    assert!(!env(&networking("port: 8321")).contains("LLAMA_STACK_PORT"));
}

#[test]
fn autoscaler_has_bounds_and_targets() {
    for (workload_fields, bounds, metrics) in [
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
        let planned = child_spec(&workload(workload_fields), "HorizontalPodAutoscaler");
        assert_eq!(
            (&planned["minReplicas"], &planned["maxReplicas"]),
            (&json!(bounds.0), &json!(bounds.1)),
            "{workload_fields}"
        );
        assert_eq!(
            planned["scaleTargetRef"],
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "starter"})
        );
        let expected_metrics: Vec<Value> = metrics
            .into_iter()
            .map(|(name, percent)| {
                json!({ "type": "Resource", "resource": { "name": name,
                    "target": { "type": "Utilization", "averageUtilization": percent } } })
            })
            .collect();
        assert_eq!(planned["metrics"], json!(expected_metrics), "{workload_fields}");
    }
}

#[test]
fn disruption_budget_needs_request_or_several_pods() {
    for (workload_fields, expected) in [
        ("replicas: 1", None),
        ("replicas: 2", Some(json!({ "maxUnavailable": 1 }))),
        ("autoscaling: {maxReplicas: 2}", Some(json!({ "maxUnavailable": 1 }))),
        ("podDisruptionBudget: {}", Some(json!({ "maxUnavailable": 1 }))),
        ("podDisruptionBudget: {minAvailable: 50%}", Some(json!({ "minAvailable": "50%" }))),
    ] {
        let planned = planned_object(&plan(&workload(workload_fields)), "PodDisruptionBudget").map(|budget| {
            let mut spec = budget["spec"].clone();
            spec.as_object_mut().unwrap().remove("selector");
            spec
        });
        assert_eq!(planned, expected, "{workload_fields}");
    }
}

#[test]
fn openshift_role_is_bound_to_service_account() {
    let mut snapshot = v1alpha2_snapshot("{distribution: {name: starter}}");
    snapshot.any_user = true;
    let binding = planned_object(&plan(&snapshot), "RoleBinding").unwrap();
    assert_eq!(binding["metadata"]["name"], "starter-rb");
    assert_eq!(binding["roleRef"]["name"], "system:openshift:scc:anyuid");
    assert_eq!(binding["subjects"], json!([{"kind": "ServiceAccount", "name": "starter-sa", "namespace": "team-a"}]));

    snapshot.any_user = false;
    let plan = plan(&snapshot);
    assert_eq!(planned_object(&plan, "RoleBinding"), None);
    assert!(plan.prune.iter().all(|kind| kind.kind != "RoleBinding"), "pods may need one that exists");
}

#[test]
fn exposed_tls_server_gets_https_backend() {
    let secure = "{distribution: {name: starter}, networking: {expose: true, tls: {enabled: true, secretName: cert}}}";
    let mut snapshot = v1alpha2_snapshot(secure);
    snapshot.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let secured = plan(&snapshot);
    let protocol = "nginx.ingress.kubernetes.io/backend-protocol";
    assert_eq!(planned_object(&secured, "Ingress").unwrap()["metadata"]["annotations"][protocol], "HTTPS");
    assert_eq!(planned_object(&secured, "Service").unwrap()["spec"]["ports"][0]["appProtocol"], "https");
    let found = secured.findings.iter().find(|finding| finding.reason == "IngressWithoutTls").unwrap();
    assert!(found.message.contains("reach Ingress starter-ingress by plain HTTP"), "{found}");
    snapshot.route = ObservedRoute::Admitted { host: "a.example".into() };
    assert!(plan(&snapshot).findings.iter().all(|finding| finding.reason != "IngressWithoutTls"), "a Route has TLS");

    let open = plan(&v1alpha2_snapshot("{distribution: {name: starter}, networking: {expose: true}}"));
    assert_eq!(planned_object(&open, "Ingress").unwrap()["metadata"].get("annotations"), None);
    assert_eq!(planned_object(&open, "Service").unwrap()["spec"]["ports"][0].get("appProtocol"), None);
    assert!(open.findings.is_empty(), "{:?}", open.findings);
}

#[test]
fn workers_without_configuration_are_reported() {
    let reasons = |spec: &str| -> Vec<&'static str> {
        plan(&v1alpha2_snapshot(spec)).findings.iter().map(|finding| finding.reason).collect()
    };
    assert_eq!(reasons("{distribution: {name: starter}, workload: {workers: 4}}"), ["FieldIgnored"]);
    assert_eq!(reasons("{distribution: {name: starter}, workload: {workers: 1}}"), [""; 0]);
    let own = "{distribution: {name: starter}, workload: {workers: 4, overrides: {command: [serve]}}}";
    assert_eq!(reasons(own), [""; 0], "an own command may read LLS_WORKERS");
    let generated = "{distribution: {name: starter}, workload: {workers: 4}, providers: {inference: {provider: vllm, \
                     endpoint: 'http://v:1/v1'}}}";
    assert!(!reasons(generated).contains(&"FieldIgnored"), "{:?}", reasons(generated));
}
