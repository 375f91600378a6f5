//! Every value of the chart: the schema knows it, and it changes what its comment names.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use steersman::installation::NAMESPACE;

use super::{documents, find, folder, granted, is_hook, render, run_helm, values_file};

type Object = (&'static str, &'static str);

const DEPLOYMENT: Object = ("Deployment", "steersman");
const APPLY_CRDS: Object = ("Job", "steersman-apply-crds");
const DETACH_CRDS: Object = ("Job", "steersman-detach-crds");
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// A field of a rendered object. Null: the field, or with an empty pointer the object, does not exist.
struct Field {
    object: Object,
    pointer: String,
    expected: Value,
}

/// A value of the chart, an example for it, and the fields that the example changes.
struct Switch {
    leaf: &'static str,
    values: Value,
    fields: Vec<Field>,
}

fn field(object: Object, pointer: impl Into<String>, expected: Value) -> Field {
    Field { object, pointer: pointer.into(), expected }
}

fn absent(kind: &'static str, name: &'static str) -> Field {
    field((kind, name), "", Value::Null)
}

fn of_container(object: Object, name: &str, expected: Value) -> Field {
    field(object, format!("{CONTAINER}/{name}"), expected)
}

fn of_pod(object: Object, name: &str, expected: Value) -> Field {
    field(object, format!("/spec/template/spec/{name}"), expected)
}

/// The arguments of the Deployment: the default ones and these.
fn arguments(more: &[&str]) -> Field {
    of_container(DEPLOYMENT, "args", json!([&["run", "--metrics-address=0.0.0.0:8080"], more].concat()))
}

/// The arguments of both hooks.
fn hook_arguments(families: &[&str]) -> [Field; 2] {
    [(APPLY_CRDS, "--apply"), (DETACH_CRDS, "--detach")].map(|(job, flag)| {
        let end = ["--webhook-namespace=steersman-system"];
        of_container(job, "args", json!([&["crds", flag], families, &end].concat()))
    })
}

fn switch(leaf: &'static str, values: Value, fields: impl IntoIterator<Item = Field>) -> Switch {
    Switch { leaf, values, fields: fields.into_iter().collect() }
}

/// The values that concern the pods: of the operator, and of the hooks where both have them.
fn pod_switches() -> Vec<Switch> {
    let toleration = json!([{ "key": "gpu", "operator": "Exists" }]);
    let affinity = json!({ "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } });
    let spread = json!([{ "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }]);
    let resources = json!({ "requests": { "cpu": "7m", "memory": "7Mi" }, "limits": { "memory": "9Mi" } });
    let secrets = json!([{ "name": "registry" }]);
    let digest = format!("sha256:{}", "a1".repeat(32));
    let images = |image: &str| {
        let of_pods = [DEPLOYMENT, APPLY_CRDS, DETACH_CRDS].map(|pod| of_container(pod, "image", json!(image)));
        let added =
            field(DEPLOYMENT, format!("{CONTAINER}/env/2"), json!({ "name": "OPERATOR_IMAGE", "value": image }));
        of_pods.into_iter().chain([added]).collect::<Vec<_>>()
    };
    let version = env!("CARGO_PKG_VERSION");
    vec![
        switch(
            "image.registry",
            json!({ "image": { "registry": "r.example/t/" } }),
            images(&format!("r.example/t/steersman:{version}")),
        ),
        switch("image.repository", json!({ "image": { "repository": "other" } }), images(&format!("other:{version}"))),
        switch("image.tag", json!({ "image": { "tag": "2" } }), images("steersman:2")),
        switch(
            "image.digest",
            json!({ "image": { "digest": digest, "tag": "2" } }),
            images(&format!("steersman@{digest}")),
        ),
        switch(
            "image.pullPolicy",
            json!({ "image": { "pullPolicy": "Always" } }),
            [
                of_container(DEPLOYMENT, "imagePullPolicy", json!("Always")),
                of_container(APPLY_CRDS, "imagePullPolicy", json!("Always")),
                arguments(&["--operator-image-pull-policy=Always"]),
            ],
        ),
        switch(
            "imagePullSecrets",
            json!({ "imagePullSecrets": secrets }),
            [DEPLOYMENT, APPLY_CRDS, DETACH_CRDS].map(|pod| of_pod(pod, "imagePullSecrets", secrets.clone())),
        ),
        switch("replicas", json!({ "replicas": 5 }), [field(DEPLOYMENT, "/spec/replicas", json!(5))]),
        switch(
            "resources",
            json!({ "resources": resources }),
            [
                of_container(DEPLOYMENT, "resources", resources.clone()),
                of_container(APPLY_CRDS, "resources/requests/cpu", json!("50m")),
            ],
        ),
        switch(
            "nodeSelector",
            json!({ "nodeSelector": { "pool": "a" } }),
            [DEPLOYMENT, APPLY_CRDS, DETACH_CRDS].map(|pod| of_pod(pod, "nodeSelector", json!({ "pool": "a" }))),
        ),
        switch(
            "tolerations",
            json!({ "tolerations": toleration }),
            [DEPLOYMENT, APPLY_CRDS, DETACH_CRDS].map(|pod| of_pod(pod, "tolerations", toleration.clone())),
        ),
        switch("affinity", json!({ "affinity": affinity }), [of_pod(DEPLOYMENT, "affinity", affinity.clone())]),
        switch(
            "topologySpreadConstraints",
            json!({ "topologySpreadConstraints": spread }),
            [of_pod(DEPLOYMENT, "topologySpreadConstraints", spread.clone())],
        ),
        switch(
            "priorityClassName",
            json!({ "priorityClassName": "high" }),
            [of_pod(DEPLOYMENT, "priorityClassName", json!("high"))],
        ),
        switch(
            "podAnnotations",
            json!({ "podAnnotations": { "a": "b" } }),
            [field(DEPLOYMENT, "/spec/template/metadata/annotations", json!({ "a": "b" }))],
        ),
        switch(
            "podLabels",
            json!({ "podLabels": { "team": "x" } }),
            [
                field(DEPLOYMENT, "/spec/template/metadata/labels/team", json!("x")),
                field(DEPLOYMENT, "/spec/selector/matchLabels/team", Value::Null),
            ],
        ),
        switch("extraArgs", json!({ "extraArgs": ["--log-level=debug"] }), [arguments(&["--log-level=debug"])]),
        switch(
            "extraEnv",
            json!({ "extraEnv": [{ "name": "A", "value": "b" }] }),
            [of_container(DEPLOYMENT, "env/3", json!({ "name": "A", "value": "b" }))],
        ),
        switch(
            "extraVolumes",
            json!({ "extraVolumes": [{ "name": "v", "emptyDir": {} }] }),
            [of_pod(DEPLOYMENT, "volumes", json!([{ "name": "v", "emptyDir": {} }]))],
        ),
        switch(
            "extraVolumeMounts",
            json!({ "extraVolumeMounts": [{ "name": "v", "mountPath": "/v" }] }),
            [of_container(DEPLOYMENT, "volumeMounts", json!([{ "name": "v", "mountPath": "/v" }]))],
        ),
        switch(
            "hooks.podAnnotations",
            json!({ "hooks": { "podAnnotations": { "a": "b" } } }),
            [APPLY_CRDS, DETACH_CRDS].map(|job| field(job, "/spec/template/metadata/annotations", json!({ "a": "b" }))),
        ),
        switch(
            "hooks.activeDeadlineSeconds",
            json!({ "hooks": { "activeDeadlineSeconds": 9 } }),
            [APPLY_CRDS, DETACH_CRDS].map(|job| field(job, "/spec/activeDeadlineSeconds", json!(9))),
        ),
        switch(
            "hooks.resources",
            json!({ "hooks": { "resources": resources } }),
            [
                of_container(APPLY_CRDS, "resources", resources.clone()),
                of_container(DETACH_CRDS, "resources", resources),
                of_container(DEPLOYMENT, "resources/requests/cpu", json!("100m")),
            ],
        ),
    ]
}

/// The values that concern what the operator does and may do.
fn operator_switches() -> Vec<Switch> {
    let profiling: Object = ("ClusterRole", "steersman-profiling-job");
    let ignored = [
        ("MutatingWebhookConfiguration", "steersman-dgdr"),
        ("ValidatingWebhookConfiguration", "steersman-dgdr"),
        ("ValidatingWebhookConfiguration", "steersman-llsd"),
    ];
    vec![
        switch(
            "controllers.dgdr",
            json!({ "controllers": { "dgdr": false } }),
            [
                arguments(&["--controllers=llsd,va"]),
                absent("MutatingWebhookConfiguration", "steersman-dgdr"),
                absent("ValidatingWebhookConfiguration", "steersman-dgdr"),
                absent(profiling.0, profiling.1),
                field(("ClusterRole", "steersman-view"), "/rules/0/apiGroups", json!(["llamastack.io"])),
            ]
            .into_iter()
            .chain(hook_arguments(&["llsd", "va"])),
        ),
        switch(
            "controllers.llsd",
            json!({ "controllers": { "llsd": false } }),
            [
                arguments(&["--controllers=dgdr,va"]),
                absent("ValidatingWebhookConfiguration", "steersman-llsd"),
                field(("ClusterRole", "steersman-edit"), "/rules/1/apiGroups", json!(["llmd.ai"])),
            ]
            .into_iter()
            .chain(hook_arguments(&["dgdr", "va"])),
        ),
        switch(
            "controllers.va",
            json!({ "controllers": { "va": false } }),
            [
                arguments(&["--controllers=dgdr,llsd"]),
                field(("ClusterRole", "steersman-admin"), "/rules/2", Value::Null),
            ]
            .into_iter()
            .chain(hook_arguments(&["dgdr", "llsd"])),
        ),
        switch(
            "watchNamespace",
            json!({ "watchNamespace": "team-a" }),
            [
                of_container(
                    DEPLOYMENT,
                    "args",
                    json!([
                        "run",
                        "--watch-namespace=team-a",
                        "--webhooks=off",
                        "--dgdr-profiling-cluster-role=",
                        "--gpu-discovery=off"
                    ]),
                ),
                absent("Job", "steersman-apply-crds"),
                absent("Job", "steersman-detach-crds"),
                absent("ClusterRole", "steersman"),
                absent("Service", "steersman-webhook"),
            ],
        ),
        switch("secrets", json!({ "secrets": "watch" }), [arguments(&["--secrets=watch"])]),
        switch(
            "images.profiler",
            json!({ "images": { "profiler": "p:1" } }),
            [arguments(&["--dgdr-default-image=p:1"])],
        ),
        switch(
            "images.distributions",
            json!({ "images": { "distributions": { "starter": "s:1" } } }),
            [field(("ConfigMap", "llama-stack-operator-config"), "/data/image-overrides", json!("starter: s:1\n"))],
        ),
        switch(
            "podDisruptionBudget.enabled",
            json!({ "podDisruptionBudget": { "enabled": false } }),
            [absent("PodDisruptionBudget", "steersman")],
        ),
        switch(
            "podDisruptionBudget.minAvailable",
            json!({ "podDisruptionBudget": { "minAvailable": "50%" } }),
            [field(("PodDisruptionBudget", "steersman"), "/spec/minAvailable", json!("50%"))],
        ),
        switch(
            "serviceAccount.name",
            json!({ "serviceAccount": { "name": "own" } }),
            [
                of_pod(DEPLOYMENT, "serviceAccountName", json!("own")),
                field(("ServiceAccount", "own"), "/metadata/namespace", json!(NAMESPACE)),
                field(("ClusterRoleBinding", "steersman"), "/subjects/0/name", json!("own")),
                field(("RoleBinding", "steersman"), "/subjects/0/name", json!("own")),
            ],
        ),
        switch(
            "serviceAccount.annotations",
            json!({ "serviceAccount": { "annotations": { "a": "b" } } }),
            [field(("ServiceAccount", "steersman"), "/metadata/annotations", json!({ "a": "b" }))],
        ),
        switch(
            "rbac.create",
            json!({ "rbac": { "create": false } }),
            [
                absent("ClusterRole", "steersman"),
                absent("ClusterRoleBinding", "steersman"),
                absent("RoleBinding", "steersman"),
                absent("ClusterRole", "steersman-view"),
                absent(profiling.0, profiling.1),
                field(("ClusterRole", "steersman-apply-crds"), "/metadata/name", json!("steersman-apply-crds")),
            ],
        ),
        switch(
            "rbac.clusterRole",
            json!({ "watchNamespace": "team-a", "rbac": { "clusterRole": true } }),
            [
                field(("ClusterRole", "steersman-steersman-system"), "/rules/0/verbs/0", json!("create")),
                of_container(
                    DEPLOYMENT,
                    "args",
                    json!([
                        "run",
                        "--metrics-address=0.0.0.0:8080",
                        "--watch-namespace=team-a",
                        "--webhooks=off",
                        "--dgdr-profiling-cluster-role="
                    ]),
                ),
            ],
        ),
        switch(
            "rbac.aggregateRoles",
            json!({ "rbac": { "aggregateRoles": false } }),
            ["steersman-view", "steersman-edit", "steersman-admin"].map(|name| absent("ClusterRole", name)),
        ),
        switch(
            "webhooks.enabled",
            json!({ "webhooks": { "enabled": false }, "crds": { "apply": false } }),
            [
                arguments(&["--webhooks=off"]),
                absent("Service", "steersman-webhook"),
                absent("ValidatingWebhookConfiguration", "steersman-llsd"),
                absent("Job", "steersman-detach-crds"),
            ],
        ),
        switch(
            "webhooks.failurePolicy",
            json!({ "webhooks": { "failurePolicy": "Ignore" } }),
            ignored.map(|object| field(object, "/webhooks/0/failurePolicy", json!("Ignore"))),
        ),
        switch(
            "crds.apply",
            json!({ "crds": { "apply": false } }),
            [
                absent("Job", "steersman-apply-crds"),
                absent("Job", "steersman-detach-crds"),
                absent("ClusterRole", "steersman-apply-crds"),
            ],
        ),
        switch(
            "crds.detach",
            json!({ "crds": { "detach": false } }),
            [
                absent("Job", "steersman-detach-crds"),
                absent("ClusterRole", "steersman-detach-crds"),
                field(APPLY_CRDS, "/metadata/name", json!("steersman-apply-crds")),
            ],
        ),
        switch(
            "networkPolicy.enabled",
            json!({ "networkPolicy": { "enabled": false } }),
            [absent("NetworkPolicy", "steersman")],
        ),
        switch(
            "networkPolicy.webhookSources",
            json!({ "networkPolicy": { "webhookSources": [{ "ipBlock": { "cidr": "10.0.0.0/28" } }] } }),
            [field(
                ("NetworkPolicy", "steersman"),
                "/spec/ingress/0/from",
                json!([{ "ipBlock": { "cidr": "10.0.0.0/28" } }]),
            )],
        ),
        switch(
            "metrics.readers",
            json!({ "metrics": { "readers": [{ "namespace": "m", "name": "p" }] } }),
            [
                field(
                    ("ClusterRole", "steersman-metrics-reader"),
                    "/rules",
                    json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]),
                ),
                field(
                    ("ClusterRoleBinding", "steersman-metrics-reader"),
                    "/subjects",
                    json!([{ "kind": "ServiceAccount", "name": "p", "namespace": "m" }]),
                ),
            ],
        ),
        switch(
            "metrics.serviceMonitor.enabled",
            json!({ "metrics": { "serviceMonitor": { "enabled": true } } }),
            [field(("ServiceMonitor", "steersman"), "/spec/endpoints/0/interval", json!("30s"))],
        ),
        switch(
            "metrics.serviceMonitor.interval",
            json!({ "metrics": { "serviceMonitor": { "enabled": true, "interval": "7s" } } }),
            [field(("ServiceMonitor", "steersman"), "/spec/endpoints/0/interval", json!("7s"))],
        ),
        switch(
            "metrics.serviceMonitor.labels",
            json!({ "metrics": { "serviceMonitor": { "enabled": true, "labels": { "release": "x" } } } }),
            [field(("ServiceMonitor", "steersman"), "/metadata/labels/release", json!("x"))],
        ),
        switch(
            "metrics.prometheusRule.enabled",
            json!({ "metrics": { "prometheusRule": { "enabled": true } } }),
            [field(("PrometheusRule", "steersman"), "/spec/groups/0/name", json!("steersman"))],
        ),
        switch(
            "metrics.prometheusRule.labels",
            json!({ "metrics": { "prometheusRule": { "enabled": true, "labels": { "release": "x" } } } }),
            [field(("PrometheusRule", "steersman"), "/metadata/labels/release", json!("x"))],
        ),
        switch(
            "metrics.dashboard.enabled",
            json!({ "metrics": { "dashboard": { "enabled": true } } }),
            [field(("ConfigMap", "steersman-dashboard"), "/metadata/labels/grafana_dashboard", json!("1"))],
        ),
        switch(
            "metrics.dashboard.labels",
            json!({ "metrics": { "dashboard": { "enabled": true, "labels": { "grafana": "x" } } } }),
            [field(("ConfigMap", "steersman-dashboard"), "/metadata/labels/grafana", json!("x"))],
        ),
    ]
}

fn render_values(values: &Value) -> Option<Vec<Value>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    // JSON is YAML.
    std::fs::write(file.path(), values.to_string()).unwrap();
    render(&["-f", file.path().to_str().unwrap()])
}

/// The actual value of a field, or null.
fn actual(objects: &[Value], field: &Field) -> Value {
    let (kind, name) = field.object;
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.and_then(|object| object.pointer(&field.pointer)).cloned().unwrap_or_default()
}

#[test]
fn every_value_changes_what_it_names() {
    let Some(default) = render(&[]) else { return };
    for Switch { leaf, values, fields } in pod_switches().into_iter().chain(operator_switches()) {
        let rendered = render_values(&values).unwrap();
        for field in &fields {
            let found = actual(&rendered, field);
            assert_eq!(found, field.expected, "{leaf}: {:?} {}", field.object, field.pointer);
        }
        let changes = fields.iter().any(|field| actual(&default, field) != field.expected);
        assert!(changes, "{leaf}: the default renders the same");
    }
}

/// Paths of the values at which the schema has a type and no further keys.
fn leaves_of_schema(schema: &Value, path: &str, leaves: &mut BTreeSet<String>) {
    match schema["properties"].as_object() {
        None => drop(leaves.insert(path.to_owned())),
        Some(properties) => {
            assert_eq!(schema["additionalProperties"], false, "{path}: misspelled keys are rejected");
            for (key, schema) in properties {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves_of_schema(schema, &path, leaves);
            }
        }
    }
}

fn at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(values, |value, key| value.get(key))
}

/// Removes the leaves of the schema. What remains is not in the schema.
fn remove(values: &mut Value, path: &str) {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(keys) = values.as_object_mut() else { return };
    match keys.get_mut(key) {
        Some(value) if !rest.is_empty() => {
            remove(value, rest);
            if value.as_object().is_some_and(serde_json::Map::is_empty) {
                keys.remove(key);
            }
        }
        _ => drop(keys.remove(key)),
    }
}

#[test]
fn schema_table_and_defaults_have_same_values() {
    let read = |file: &str| std::fs::read_to_string(folder().join(file)).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut defaults: Value = serde_saphyr::from_str(&read("values.yaml")).unwrap();
    let mut leaves = BTreeSet::new();
    leaves_of_schema(&schema, "", &mut leaves);
    // Helm adds this one itself.
    assert!(leaves.remove("global"));
    for leaf in &leaves {
        assert!(at(&defaults, leaf).is_some(), "{leaf} of the schema has no default");
    }
    let tested: BTreeSet<String> =
        pod_switches().iter().chain(&operator_switches()).map(|switch| switch.leaf.to_owned()).collect();
    assert_eq!(tested, leaves, "the table of tested values and the schema");
    for leaf in &leaves {
        remove(&mut defaults, leaf);
    }
    assert_eq!(defaults, json!({}), "these defaults are not in the schema");
}

#[test]
fn single_controller_leaves_no_traces_of_others() {
    let groups = [("dgdr", "nvidia.com"), ("llsd", "llamastack.io"), ("va", "llmd.ai")];
    for (family, group) in groups {
        let mut values = json!({ "controllers": { "dgdr": false, "llsd": false, "va": false } });
        values["controllers"][family] = true.into();
        let Some(rendered) = render_values(&values) else { return };
        let expected = [arguments(&[&format!("--controllers={family}")])].into_iter().chain(hook_arguments(&[family]));
        for field in expected {
            assert_eq!(actual(&rendered, &field), field.expected, "{family}: {:?}", field.object);
        }
        let configurations: BTreeSet<&str> = rendered
            .iter()
            .filter(|object| !object["webhooks"].is_null())
            .map(|object| object["metadata"]["name"].as_str().unwrap())
            .collect();
        let own = format!("steersman-{family}");
        let expected = if family == "va" { BTreeSet::new() } else { BTreeSet::from([own.as_str()]) };
        assert_eq!(configurations, expected);
        let roles: Vec<&Value> = rendered.iter().filter(|object| object["rules"].is_array()).collect();
        let granted: BTreeSet<&str> = roles
            .iter()
            .flat_map(|role| role["rules"].as_array().unwrap())
            .flat_map(|rule| rule["apiGroups"].as_array().into_iter().flatten())
            .map(|group| group.as_str().unwrap())
            .filter(|granted| groups.iter().any(|(_, group)| granted == group))
            .collect();
        assert_eq!(granted, BTreeSet::from([group]), "{family}");
    }
}

#[test]
fn monitoring_objects_fit_each_other() {
    let Some(rendered) = render(&["-f", &values_file("monitoring")]) else { return };
    let service = find(&rendered, "Service", "steersman-metrics");
    let monitor = find(&rendered, "ServiceMonitor", "steersman");
    assert_contains(&service["metadata"]["labels"], &monitor["spec"]["selector"]["matchLabels"]);
    let (port, endpoint) = (&service["spec"]["ports"][0], &monitor["spec"]["endpoints"][0]);
    assert_eq!((&endpoint["port"], &endpoint["scheme"]), (&port["name"], &json!("https")));
    let pod = &find(&rendered, "Deployment", "steersman")["spec"]["template"];
    assert_contains(&pod["metadata"]["labels"], &service["spec"]["selector"]);
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    let metrics = ports.iter().find(|named| named["name"] == port["targetPort"]).unwrap();
    assert_eq!(metrics["containerPort"], 8080, "the port of --metrics-address");

    let read = |file: &str| std::fs::read_to_string(folder().join("files").join(file)).unwrap();
    let alerts: Value = serde_saphyr::from_str(&read("alerts.yaml")).unwrap();
    assert_eq!(find(&rendered, "PrometheusRule", "steersman")["spec"], alerts);
    let stored = find(&rendered, "ConfigMap", "steersman-dashboard")["data"]["steersman.json"].as_str().unwrap();
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(stored).unwrap(), dashboard);
}

#[track_caller]
fn assert_contains(labels: &Value, selector: &Value) {
    let selector = selector.as_object().unwrap();
    assert!(!selector.is_empty());
    for (key, value) in selector {
        assert_eq!(&labels[key], value, "{key}");
    }
}

/// Names of objects follow the release, except those that CRDs, webhook configurations and the operator name.
#[test]
fn other_release_and_namespace_are_consistent() {
    let chart = folder();
    let monitoring = values_file("monitoring");
    let template = ["template", "models", chart.to_str().unwrap(), "--namespace", "serving", "-f", &monitoring];
    let Some(output) = run_helm(&template) else { return };
    let rendered = documents(&output.ok());
    for object in &rendered {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let cluster_wide = kind.starts_with("Cluster") || kind.ends_with("WebhookConfiguration");
        let namespace = if cluster_wide { Value::Null } else { json!("serving") };
        assert_eq!(object["metadata"]["namespace"], namespace, "{kind} {name}");
        let fixed = [
            "steersman-webhook",
            "steersman-dgdr",
            "steersman-llsd",
            "steersman-profiling-job",
            "steersman-profiling-job-thorough",
        ];
        assert!(name.starts_with("models-steersman") || fixed.contains(&name), "{kind} {name}");
        for webhook in object["webhooks"].as_array().into_iter().flatten() {
            let service = &webhook["clientConfig"]["service"];
            assert_eq!((&service["name"], &service["namespace"]), (&json!("steersman-webhook"), &json!("serving")));
        }
        for subject in object["subjects"].as_array().into_iter().flatten().filter(|_| !name.ends_with("metrics-reader"))
        {
            assert_eq!(subject["namespace"], "serving", "{kind} {name}");
            find(&rendered, "ServiceAccount", subject["name"].as_str().unwrap());
        }
        let pod = &object["spec"]["template"]["spec"];
        if let Some(account) = pod["serviceAccountName"].as_str() {
            find(&rendered, "ServiceAccount", account);
        }
        if is_hook(object) && kind == "Job" {
            let arguments = pod["containers"][0]["args"].as_array().unwrap();
            assert!(arguments.contains(&json!("--webhook-namespace=serving")), "{name}");
        }
    }
    let pods = &find(&rendered, "Deployment", "models-steersman")["spec"]["template"]["metadata"]["labels"];
    for (kind, name, pointer) in [
        ("Deployment", "models-steersman", "/spec/selector/matchLabels"),
        ("Service", "steersman-webhook", "/spec/selector"),
        ("Service", "models-steersman-metrics", "/spec/selector"),
        ("PodDisruptionBudget", "models-steersman", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "models-steersman", "/spec/podSelector/matchLabels"),
    ] {
        assert_contains(pods, find(&rendered, kind, name).pointer(pointer).unwrap());
    }
    let usual = granted(&render(&["-f", &monitoring]).unwrap(), "steersman");
    let other: BTreeSet<String> = granted(&rendered, "models-steersman")
        .into_iter()
        .map(|rule| rule.replacen("\"serving\"", "\"steersman-system\"", 1))
        .collect();
    assert_eq!(other, usual);
}
