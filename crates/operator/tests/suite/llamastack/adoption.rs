//! Adoption of a server from the Go operator: without a restart, even if the adopting reconcile crashes at any call.

use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::ResourceExt;
use steersman_reconcile::ADOPTED_LABEL;

use super::*;

/// The Deployment that the Go operator writes for the same object: in its own order of fields, with the hash of a
/// ConfigMap and a variable of an old version.
fn go_operator_deployment(own: &DynamicObject) -> Value {
    let labels = json!({ "app.kubernetes.io/managed-by": "llama-stack-operator", "llamastack.io/watch": "true",
        "app.kubernetes.io/part-of": "llama-stack" });
    let selector = json!({ "app": "llama-stack", "app.kubernetes.io/instance": "starter" });
    let env = [("LLS_PORT", "8321"), ("HF_HOME", "/.llama"), ("LLS_OLD", "1"), ("INFERENCE_MODEL", "m")];
    let env: Vec<_> = env.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let container = json!({ "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.2.12",
        "ports": [{ "containerPort": 8321 }], "env": env,
        "volumeMounts": [{ "name": "lls-storage", "mountPath": "/.llama" }] });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "starter", "labels": labels, "ownerReferences": [{ "apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "name": "starter", "uid": own.uid(), "controller": true,
            "blockOwnerDeletion": true }] },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": selector }, "strategy": { "type": "Recreate" },
            "template": {
                "metadata": { "labels": selector, "annotations": { "configmap.hash/user-config": "41-config" } },
                "spec": { "serviceAccountName": "starter-sa", "containers": [container],
                    "volumes": [{ "name": "lls-storage", "persistentVolumeClaim": { "claimName": "starter-pvc" } }] },
            },
        },
    })
}

/// Writes as the Go operator does: creates with the field manager `manager`, then applies with the object's name as field
/// manager.
async fn write_as_go_operator(client: &Client, namespace: &Namespace) -> Result<()> {
    let own = objects(client, namespace.name()).get("starter").await?;
    let deployment = go_operator_deployment(&own);
    let deployments: Api<Deployment> = namespace.api();
    if deployments.get_opt("starter").await?.is_none() {
        let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
        deployments.create(&manager, &object(deployment.clone())).await?;
        let account: ServiceAccount = object(json!({ "metadata": { "name": "starter-sa",
            "labels": deployment["metadata"]["labels"], "ownerReferences": deployment["metadata"]["ownerReferences"] } }));
        namespace.api::<ServiceAccount>().create(&manager, &account).await?;
    }
    deployments.patch("starter", &PatchParams::apply("starter").force(), &Patch::Apply(deployment)).await?;
    Ok(())
}

async fn prepare_go_deployment(client: &Client, namespace: &Namespace) -> Result<()> {
    prepare(client, namespace).await?;
    write_as_go_operator(client, namespace).await
}

async fn status_text(client: &Client, namespace: &Namespace) -> String {
    objects(client, namespace.name()).get("starter").await.unwrap().data["status"].to_string()
}

#[tokio::test]
async fn go_operator_deployment_is_adopted_without_restart() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("adopt").await.unwrap();
    prepare_go_deployment(&admin, &namespace).await.unwrap();
    let deployments: Api<Deployment> = namespace.api();
    let before = deployments.get("starter").await.unwrap();

    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let adopted = deployments.get("starter").await.unwrap();
    assert_eq!(adopted.spec, before.spec);
    assert_eq!(adopted.metadata.generation, before.metadata.generation);
    assert!(adopted.labels().contains_key(ADOPTED_LABEL));
    let managers: Vec<_> = adopted.managed_fields().iter().map(|entry| entry.manager.as_deref().unwrap()).collect();
    assert_eq!(managers, ["steersman/llamastack"]);
    assert_eq!(adopted.owner_references()[0].api_version, "llamastack.io/v1alpha2");
    let status = status_text(&admin, &namespace).await;
    assert!(status.contains("AdoptedPodsKept") && status.contains("steersman.dev/adopted-"), "{status}");
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let settled = reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    assert!(matches!(settled, ReconcileOutcome::Reconciled { written: 0, .. }), "{settled:?}");

    // A manual restart of the pods is not reverted.
    let restarted = json!({ "spec": { "template": { "metadata": { "annotations": { "restartedAt": "now" } } } } });
    deployments.patch("starter", &PatchParams::default(), &Patch::Strategic(restarted)).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let template = deployments.get("starter").await.unwrap().spec.unwrap().template;
    assert_eq!(template.metadata.unwrap().annotations.unwrap()["restartedAt"], "now");

    // When the user removes a variable, the Deployment is rewritten, without the leftovers of the Go operator.
    remove_env(&admin, &namespace).await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap();
    let changed = deployments.get("starter").await.unwrap();
    assert!(!changed.labels().contains_key(ADOPTED_LABEL));
    let pod = changed.spec.unwrap().template.spec.unwrap();
    let env: Vec<_> = pod.containers[0].env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(env, ["HF_HOME", "LLS_WORKERS", "LLS_PORT", "LLAMA_STACK_CONFIG"]);

    // The Go operator still runs: report the conflict and stop writing.
    write_as_go_operator(&admin, &namespace).await.unwrap();
    let contested = deployments.get("starter").await.unwrap();
    reconcile_once(cluster, admin.clone(), namespace.name()).await.unwrap_err();
    let left = deployments.get("starter").await.unwrap();
    assert_eq!(left.metadata.resource_version, contested.metadata.resource_version);
    let status = status_text(&admin, &namespace).await;
    assert!(status.contains("another operator is writing this object (field manager"), "{status}");
}

#[tokio::test]
async fn adoption_survives_crash_at_every_call() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let crashes = crash_at_every_call_with_invariant(
        cluster,
        "adopt-crash",
        (CountedCalls::Writes, &CallFault::ALL),
        async |namespace: &Namespace| prepare_go_deployment(&admin, namespace).await,
        async |client, namespace: &Namespace, ()| reconcile_once(cluster, client, namespace.name()).await.map(|_| ()),
        async |namespace: &Namespace| {
            let live = namespace.api::<Deployment>().get("starter").await?;
            anyhow::ensure!(live.metadata.generation == Some(1), "the pods were restarted");
            Ok(())
        },
        async |namespace: &Namespace| snapshot(&admin, namespace).await,
    )
    .await
    .unwrap();
    assert!(crashes.calls >= 8, "label, merge of field managers and apply are separate calls: {crashes:?}");
    assert!(crashes.failures.is_empty(), "{:#?}", crashes.failures);
}

/// Objects of v1alpha1 as the Go operator's users write them, and as the API server stores them with the defaults of
/// v1alpha1.
pub fn go_operator_objects() -> Vec<(&'static str, Value)> {
    let starter = json!({ "name": "starter" });
    let spread = json!([{ "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": { "matchLabels": { "app.kubernetes.io/instance": "sample" } } }]);
    vec![
        ("plain", json!({ "replicas": 1, "server": { "distribution": starter } })),
        ("empty-storage", json!({ "replicas": 1, "server": { "distribution": starter, "storage": {} } })),
        ("sized", json!({ "replicas": 1, "server": { "distribution": starter, "storage": { "size": "20Gi" } } })),
        (
            "network",
            json!({ "replicas": 1, "server": { "distribution": starter }, "network": { "exposeRoute": false,
                "allowedFrom": { "namespaces": ["a"], "labels": ["team/authorized"] } } }),
        ),
        (
            "exposed",
            json!({ "replicas": 1, "network": { "exposeRoute": true }, "server": { "distribution": starter,
                "containerSpec": { "name": "llama-stack", "env": [{ "name": "A", "value": "b" }] } } }),
        ),
        (
            "several",
            json!({ "replicas": 3, "server": { "distribution": starter, "workers": 2, "containerSpec": {
                "name": "llama-stack", "port": 8321, "resources": { "limits": { "cpu": "2" } } } } }),
        ),
        (
            "sample",
            json!({ "replicas": 1, "server": { "distribution": starter, "workers": 2,
                "containerSpec": { "name": "llama-stack", "env": [{ "name": "A", "value": "b" }] },
                "podDisruptionBudget": { "maxUnavailable": 1 }, "topologySpreadConstraints": spread,
                "autoscaling": { "minReplicas": 1, "maxReplicas": 5, "targetCPUUtilizationPercentage": 75 },
                "storage": { "size": "20Gi", "mountPath": "/home/lls/.lls" } } }),
        ),
        (
            "configured",
            json!({ "replicas": 1, "server": { "distribution": starter, "userConfig": { "configMapName": "mine" },
                "tlsConfig": { "caBundle": { "configMapName": "authorities" } } } }),
        ),
        (
            "overridden",
            json!({ "replicas": 1, "server": { "distribution": starter, "podOverrides": {
                "serviceAccountName": "own", "terminationGracePeriodSeconds": 0,
                "volumes": [{ "name": "own", "emptyDir": {} }], "volumeMounts": [{ "name": "own", "mountPath": "/own" }] },
                "containerSpec": { "name": "own", "port": 9000, "command": ["own"], "args": ["x"] } } }),
        ),
    ]
}

/// The labels that the Go operator sets on every object that it renders.
fn go_labels() -> Value {
    json!({ "app.kubernetes.io/managed-by": "llama-stack-operator", "app.kubernetes.io/part-of": "llama-stack",
        "llamastack.io/watch": "true" })
}

fn go_selector(name: &str) -> Value {
    json!({ "app": "llama-stack", "app.kubernetes.io/instance": name })
}

/// The pod template that the Go operator writes, with the image of its own release.
fn go_operator_template(name: &str, spec: &Value) -> Value {
    let server = &spec["server"];
    let container = &server["containerSpec"];
    let overrides = &server["podOverrides"];
    let trusts = !server["tlsConfig"].is_null();
    let configured = !server["userConfig"].is_null();
    let mount_path = server["storage"]["mountPath"].as_str().unwrap_or("/.llama");
    let port = container["port"].as_i64().unwrap_or(8321);
    let workers = server["workers"].as_i64();
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut env = vec![variable("HF_HOME", mount_path)];
    env.extend(trusts.then(|| variable("SSL_CERT_FILE", "/etc/ssl/certs/ca-bundle/ca-bundle.crt")));
    env.push(variable("LLS_WORKERS", &workers.unwrap_or(1).to_string()));
    env.push(variable("LLS_PORT", &port.to_string()));
    env.push(variable("LLAMA_STACK_CONFIG", "/etc/llama-stack/config.yaml"));
    env.extend(container["env"].as_array().into_iter().flatten().cloned());

    let mut resources = json!({ "requests": { "cpu": workers.unwrap_or(1).to_string(), "memory": "1Gi" } });
    if workers.is_some() {
        let limit = container["resources"]["limits"]["cpu"].as_str().map(str::to_owned);
        let limit = limit.or_else(|| workers.map(|workers| workers.to_string()));
        resources["limits"] = json!({ "cpu": limit, "memory": "1Gi" });
    }
    let storage = match server.get("storage") {
        Some(_) => json!({ "name": "lls-storage", "persistentVolumeClaim": { "claimName": format!("{name}-pvc") } }),
        None => json!({ "name": "lls-storage", "emptyDir": {} }),
    };
    let (mut volumes, mut mounts) = (vec![storage], vec![json!({ "name": "lls-storage", "mountPath": mount_path })]);
    let mut annotations = json!({});
    if configured {
        volumes.push(json!({ "name": "user-config", "configMap": { "name": server["userConfig"]["configMapName"] } }));
        mounts.push(json!({ "name": "user-config", "mountPath": "/etc/llama-stack/", "readOnly": true }));
        annotations["configmap.hash/user-config"] = json!("41-mine");
    }
    if trusts {
        let items = json!([{ "key": "ca-bundle.crt", "path": "ca-bundle.crt" }]);
        volumes
            .push(json!({ "name": "ca-bundle", "configMap": { "name": format!("{name}-ca-bundle"), "items": items } }));
        mounts.push(json!({ "name": "ca-bundle", "mountPath": "/etc/ssl/certs/ca-bundle", "readOnly": true }));
        annotations["configmap.hash/ca-bundle"] = json!(format!("42-{name}-ca-bundle"));
    }
    volumes.extend(overrides["volumes"].as_array().into_iter().flatten().cloned());
    mounts.extend(overrides["volumeMounts"].as_array().into_iter().flatten().cloned());
    let mut server_container = json!({
        "name": container["name"].as_str().unwrap_or("llama-stack"),
        "image": "docker.io/llamastack/distribution-starter:0.6.0", "ports": [{ "containerPort": port }], "env": env,
        "resources": resources, "volumeMounts": mounts,
        "startupProbe": { "httpGet": { "path": "/v1/health", "port": port }, "initialDelaySeconds": 15,
            "timeoutSeconds": 30, "failureThreshold": 3, "successThreshold": 1 },
    });
    if configured {
        server_container["command"] =
            json!(["/bin/sh", "-c", "exec uvicorn llama_stack.core.server.server:create_app --factory"]);
        server_container["args"] = json!([]);
    }
    for field in ["command", "args"].into_iter().filter(|field| !container[*field].is_null()) {
        server_container[field] = container[field].clone();
    }
    let account = overrides["serviceAccountName"].as_str().map_or_else(|| format!("{name}-sa"), str::to_owned);
    let mut pod = json!({ "serviceAccountName": account, "securityContext": { "fsGroup": 1001 },
        "containers": [server_container], "volumes": volumes });
    if let Some(seconds) = overrides["terminationGracePeriodSeconds"].as_i64() {
        pod["terminationGracePeriodSeconds"] = seconds.into();
    }
    let instance = json!({ "matchLabels": { "app.kubernetes.io/instance": name } });
    if spec["replicas"].as_i64() > Some(1) {
        let keys = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/hostname"];
        let spread = |key| json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": instance });
        pod["topologySpreadConstraints"] = keys.map(spread).to_vec().into();
        pod["affinity"] = json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100, "podAffinityTerm": { "labelSelector": instance,
                "topologyKey": "kubernetes.io/hostname" } }] } });
    }
    if !server["topologySpreadConstraints"].is_null() {
        pod["topologySpreadConstraints"] = server["topologySpreadConstraints"].clone();
    }
    json!({ "metadata": { "labels": go_selector(name), "annotations": annotations }, "spec": pod })
}

/// The children that the Go operator writes for an object, in its order.
pub fn go_operator_children(name: &str, spec: &Value, owner: &DynamicObject, authorities: &str) -> Vec<Value> {
    let (server, network) = (&spec["server"], &spec["network"]);
    let autoscaling = &server["autoscaling"];
    let port = server["containerSpec"]["port"].as_i64().unwrap_or(8321);
    let child = |kind: &str, suffix: &str, content: Value| {
        let (version, kind) = kind.rsplit_once('/').unwrap();
        let full_name = if suffix.is_empty() { name.to_owned() } else { format!("{name}-{suffix}") };
        let mut child = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": full_name,
            "labels": go_labels(), "ownerReferences": [{ "apiVersion": "llamastack.io/v1alpha1",
                "kind": "LlamaStackDistribution", "name": name, "uid": owner.uid(), "controller": true,
                "blockOwnerDeletion": true }] } });
        child.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        child
    };
    let mut children = Vec::new();
    if !server["tlsConfig"].is_null() {
        let mut map = child("v1/ConfigMap", "ca-bundle", json!({ "data": { "ca-bundle.crt": authorities } }));
        map["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "llama-stack-operator",
            "app.kubernetes.io/instance": name, "app.kubernetes.io/component": "ca-bundle", "llamastack.io/watch": "true" });
        children.push(map);
    }
    if let Some(storage) = server.get("storage") {
        let size = storage["size"].as_str().unwrap_or("10Gi");
        let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } } });
        children.push(child("v1/PersistentVolumeClaim", "pvc", json!({ "spec": claim })));
    }
    children.push(child("v1/ServiceAccount", "sa", json!({})));
    if !server["containerSpec"]["env"].is_null() || !server["containerSpec"]["port"].is_null() {
        let ports = json!([{ "name": "http", "protocol": "TCP", "port": port, "targetPort": port }]);
        let spec = json!({ "type": "ClusterIP", "selector": go_selector(name), "ports": ports });
        children.push(child("v1/Service", "service", json!({ "spec": spec })));
    }
    if !network["allowedFrom"].is_null() {
        let named =
            |name: &str| json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
        let from = json!([{ "podSelector": {} }, named("llama-stack-k8s-operator-system"), named("a"),
            { "namespaceSelector": { "matchExpressions": [{ "key": "team/authorized", "operator": "Exists" }] } },
            { "namespaceSelector": { "matchLabels": { "network.openshift.io/policy-group": "ingress" } } }]);
        let policy = json!({ "podSelector": { "matchLabels": go_selector(name) }, "policyTypes": ["Ingress"],
            "ingress": [{ "from": from, "ports": [{ "port": port, "protocol": "TCP" }] }] });
        children.push(child("networking.k8s.io/v1/NetworkPolicy", "network-policy", json!({ "spec": policy })));
    }
    let mut deployment = json!({ "selector": { "matchLabels": go_selector(name) },
        "template": go_operator_template(name, spec) });
    if autoscaling.is_null() {
        deployment["replicas"] = spec["replicas"].clone();
    }
    if server.get("storage").is_some() {
        deployment["strategy"] = json!({ "type": "Recreate" });
    }
    children.push(child("apps/v1/Deployment", "", json!({ "spec": deployment })));
    // The Go operator never fills in the value of this label.
    let unnamed = |mut child: Value| {
        child["metadata"]["labels"]["app"] = json!("llama-stack");
        child["metadata"]["labels"]["app.kubernetes.io/instance"] = json!("");
        child
    };
    if !autoscaling.is_null() {
        let target =
            json!({ "type": "Utilization", "averageUtilization": autoscaling["targetCPUUtilizationPercentage"] });
        let scaler = json!({ "minReplicas": 1, "maxReplicas": autoscaling["maxReplicas"],
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name },
            "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }] });
        children.push(unnamed(child("autoscaling/v2/HorizontalPodAutoscaler", "hpa", json!({ "spec": scaler }))));
    }
    if !server["podDisruptionBudget"].is_null() || spec["replicas"].as_i64() > Some(1) {
        let budget = json!({ "maxUnavailable": 1, "selector": { "matchLabels": go_selector(name) } });
        children.push(unnamed(child("policy/v1/PodDisruptionBudget", "pdb", json!({ "spec": budget }))));
    }
    let role = "system:openshift:scc:anyuid";
    let binding = json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": format!("{name}-sa"), "namespace": owner.namespace() }] });
    children.push(child("rbac.authorization.k8s.io/v1/RoleBinding", "rb", binding));
    if network["exposeRoute"] == true {
        let service = json!({ "service": { "name": format!("{name}-service"), "port": { "number": port } } });
        let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": service }]);
        let mut ingress = child(
            "networking.k8s.io/v1/Ingress",
            "ingress",
            json!({ "spec": { "rules": [{ "http": { "paths": paths } }] } }),
        );
        ingress["metadata"]["labels"] = json!({ "app.kubernetes.io/managed-by": "llama-stack-operator",
            "app.kubernetes.io/instance": name });
        children.push(ingress);
    }
    children
}

fn api_of(client: &Client, namespace: &str, child: &Value) -> Api<DynamicObject> {
    let version = child["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = kube::core::GroupVersionKind::gvk(group, version, child["kind"].as_str().unwrap());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// Creates a child as the Go operator does. Later reconciles of it apply most kinds with the object's name as field manager,
/// update a few, and leave claims alone.
pub async fn write_go_child(client: &Client, namespace: &str, name: &str, child: &Value) {
    let api = api_of(client, namespace, child);
    let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    let created = api.create(&manager, &object(child.clone())).await.unwrap();
    match child["kind"].as_str().unwrap() {
        "PersistentVolumeClaim" => {}
        "Ingress" | "ConfigMap" => {
            api.replace(&created.name_any(), &manager, &created).await.unwrap();
        }
        _ => {
            api.patch(&created.name_any(), &PatchParams::apply(name).force(), &Patch::Apply(child)).await.unwrap();
        }
    }
}

/// Reconciles an object with this spec, as the watch reports it.
async fn reconcile_spec(cluster: &Cluster, client: &Client, namespace: &str, name: &str, spec: Option<&Value>) {
    let mut object = objects(client, namespace).get(name).await.unwrap();
    if let Some(spec) = spec {
        object.data["spec"] = spec.clone();
    }
    let cache = Arc::new(Cache::new(reconciler().children()));
    cache.fill(&server(cluster, client.clone()), &Scope::Namespace(namespace.to_owned())).await.unwrap();
    reconcile_view(cluster, client.clone(), &View { object, cache })
        .await
        .unwrap_or_else(|error| panic!("{name}: {error:#}"));
}

/// The object is first read in v1alpha2 without the defaults of that version, as from a v1alpha1 object in etcd. After the
/// leader has stored it again, it has them.
#[tokio::test]
async fn go_operator_servers_are_not_restarted() {
    let Some((cluster, admin)) = cluster_with_crd().await else { return };
    let namespace = cluster.namespace("adopt-forms").await.unwrap();
    let authorities = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap().cert.pem();
    for (name, data) in
        [("mine", json!({ "config.yaml": "version: 2" })), ("authorities", json!({ "ca-bundle.crt": authorities }))]
    {
        let map: ConfigMap = object(json!({ "metadata": { "name": name }, "data": data }));
        namespace.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    }
    let deployments: Api<Deployment> = namespace.api();
    for (name, spec) in go_operator_objects() {
        let old = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec });
        let read = steersman_api::convert::convert(old, "llamastack.io/v1alpha2").unwrap().object;
        let own =
            objects(&admin, namespace.name()).create(&PostParams::default(), &object(read.clone())).await.unwrap();
        let children = go_operator_children(name, &spec, &own, &authorities);
        for child in &children {
            write_go_child(&admin, namespace.name(), name, child).await;
        }
        let before = deployments.get(name).await.unwrap();

        reconcile_spec(cluster, &admin, namespace.name(), name, Some(&read["spec"])).await;
        let adopted = deployments.get(name).await.unwrap();
        assert!(adopted.labels().contains_key(ADOPTED_LABEL), "{name}");
        for _ in 0..2 {
            reconcile_spec(cluster, &admin, namespace.name(), name, None).await;
        }
        let after = deployments.get(name).await.unwrap();
        assert_eq!(after.spec, before.spec, "{name}: stored as {}", own.data["spec"]);
        assert_eq!(after.metadata.generation, before.metadata.generation, "{name}: nothing rolls out");
        assert_eq!(after.labels()[ADOPTED_LABEL], adopted.labels()[ADOPTED_LABEL], "{name}");
        let stored = objects(&admin, namespace.name()).get(name).await.unwrap();
        let status = &stored.data["status"];
        assert_eq!(status["resolvedDistribution"]["image"], "docker.io/llamastack/distribution-starter:0.6.0");
        let accepted = status["conditions"].as_array().unwrap().iter().find(|known| known["type"] == "SpecAccepted");
        assert_eq!(accepted.unwrap()["status"], "True", "{name}: {status:#}");
        for child in &children {
            assert_taken_over(&admin, namespace.name(), &own, child).await;
        }
    }
}

/// The child is the same object, and Steersman is its only field manager. Claims and RoleBindings are never written.
pub async fn assert_taken_over(client: &Client, namespace: &str, own: &DynamicObject, child: &Value) {
    let name = child["metadata"]["name"].as_str().unwrap();
    let kind = child["kind"].as_str().unwrap();
    let live = api_of(client, namespace, child).get(name).await.unwrap();
    assert_eq!(live.owner_references()[0].uid, own.uid().unwrap(), "{kind} {name}");
    let written = !["PersistentVolumeClaim", "RoleBinding"].contains(&kind);
    let expected =
        if written { vec!["steersman/llamastack"] } else { vec!["manager", own.metadata.name.as_deref().unwrap()] };
    let managers = live.managed_fields().iter().filter(|entry| entry.subresource.is_none());
    let managers: Vec<&str> = managers.filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(managers.iter().all(|manager| expected.contains(manager)), "{kind} {name}: {managers:?}");
    if written {
        assert_eq!(live.owner_references()[0].api_version, "llamastack.io/v1alpha2", "{kind} {name}");
    }
}
