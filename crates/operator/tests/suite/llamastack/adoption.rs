//! Adoption of a server from the Go operator: without a restart, even if the adopting reconcile crashes at any call.

use k8s_openapi::api::core::v1::ServiceAccount;
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
fn go_operator_objects() -> Vec<(&'static str, Value)> {
    let starter = json!({ "name": "starter" });
    vec![
        ("plain", json!({ "replicas": 1, "server": { "distribution": starter } })),
        ("empty-storage", json!({ "replicas": 1, "server": { "distribution": starter, "storage": {} } })),
        ("sized", json!({ "replicas": 1, "server": { "distribution": starter, "storage": { "size": "20Gi" } } })),
        (
            "network",
            json!({ "replicas": 1, "server": { "distribution": starter }, "network": { "exposeRoute": false,
                "allowedFrom": { "namespaces": ["a"] } } }),
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
    ]
}

/// The children that the Go operator writes for an object, with the image of its own release.
fn go_operator_children(name: &str, spec: &Value, owner: &DynamicObject) -> Vec<Value> {
    let server = &spec["server"];
    let labels = json!({ "app.kubernetes.io/managed-by": "llama-stack-operator", "llamastack.io/watch": "true",
        "app.kubernetes.io/part-of": "llama-stack" });
    let selector = json!({ "app": "llama-stack", "app.kubernetes.io/instance": name });
    let metadata = |child: &str| {
        json!({ "name": child, "labels": labels, "ownerReferences": [{ "apiVersion": "llamastack.io/v1alpha1",
            "kind": "LlamaStackDistribution", "name": name, "uid": owner.uid(), "controller": true,
            "blockOwnerDeletion": true }] })
    };
    let workers = server["workers"].as_i64();
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let mut env = vec![
        variable("HF_HOME", "/.llama"),
        variable("LLS_WORKERS", &workers.unwrap_or(1).to_string()),
        variable("LLS_PORT", "8321"),
        variable("LLAMA_STACK_CONFIG", "/etc/llama-stack/config.yaml"),
    ];
    env.extend(server["containerSpec"]["env"].as_array().into_iter().flatten().cloned());
    let cpu = workers.unwrap_or(1).to_string();
    let mut resources = json!({ "requests": { "cpu": cpu, "memory": "1Gi" } });
    if workers.is_some() {
        resources["limits"] = json!({ "cpu": cpu, "memory": "1Gi" });
    }
    let stored = server.get("storage").is_some();
    let volume = if stored {
        json!({ "name": "lls-storage", "persistentVolumeClaim": { "claimName": format!("{name}-pvc") } })
    } else {
        json!({ "name": "lls-storage", "emptyDir": {} })
    };
    let mut pod = json!({
        "serviceAccountName": format!("{name}-sa"), "securityContext": { "fsGroup": 1001 },
        "containers": [{ "name": "llama-stack", "image": "docker.io/llamastack/distribution-starter:0.6.0",
            "ports": [{ "containerPort": 8321 }], "env": env, "resources": resources,
            "startupProbe": { "httpGet": { "path": "/v1/health", "port": 8321 }, "initialDelaySeconds": 15,
                "timeoutSeconds": 30, "failureThreshold": 3, "successThreshold": 1 },
            "volumeMounts": [{ "name": "lls-storage", "mountPath": "/.llama" }] }],
        "volumes": [volume],
    });
    if spec["replicas"].as_i64() > Some(1) {
        let instance = json!({ "matchLabels": { "app.kubernetes.io/instance": name } });
        let keys = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/hostname"];
        pod["topologySpreadConstraints"] = keys
            .map(|key| {
                json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": instance })
            })
            .to_vec()
            .into();
        pod["affinity"] = json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 100, "podAffinityTerm": { "labelSelector": instance,
                "topologyKey": "kubernetes.io/hostname" } }] } });
    }
    let mut spec_of_deployment = json!({ "replicas": spec["replicas"], "selector": { "matchLabels": selector },
        "template": { "metadata": { "labels": selector }, "spec": pod } });
    if stored {
        spec_of_deployment["strategy"] = json!({ "type": "Recreate" });
    }
    let mut children = vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(&format!("{name}-sa")) }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(name),
            "spec": spec_of_deployment }),
    ];
    if stored {
        let size = server["storage"]["size"].as_str().unwrap_or("10Gi");
        children.push(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": metadata(&format!("{name}-pvc")), "spec": { "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": size } } } }));
    }
    if !server["containerSpec"]["env"].is_null() || !server["containerSpec"]["port"].is_null() {
        children.push(json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(&format!("{name}-service")), "spec": { "type": "ClusterIP", "selector": selector,
                "ports": [{ "name": "http", "protocol": "TCP", "port": 8321, "targetPort": 8321 }] } }));
    }
    children
}

/// Creates a child as the Go operator does, then applies it with the object's name as field manager.
async fn write_go_child(client: &Client, namespace: &str, name: &str, child: &Value) {
    let typed: DynamicObject = object(child.clone());
    let types = typed.types.clone().unwrap();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let kind = kube::core::GroupVersionKind::gvk(group, version, &types.kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind));
    let manager = PostParams { field_manager: Some("manager".into()), ..PostParams::default() };
    api.create(&manager, &typed).await.unwrap();
    if types.kind != "PersistentVolumeClaim" {
        let params = PatchParams::apply(name).force();
        api.patch(&typed.name_any(), &params, &Patch::Apply(child)).await.unwrap();
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
    let deployments: Api<Deployment> = namespace.api();
    for (name, spec) in go_operator_objects() {
        let old = json!({ "apiVersion": "llamastack.io/v1alpha1", "kind": "LlamaStackDistribution",
            "metadata": { "name": name }, "spec": spec });
        let read = steersman_api::convert::convert(old, "llamastack.io/v1alpha2").unwrap().object;
        let own =
            objects(&admin, namespace.name()).create(&PostParams::default(), &object(read.clone())).await.unwrap();
        for child in go_operator_children(name, &spec, &own) {
            write_go_child(&admin, namespace.name(), name, &child).await;
        }
        let before = deployments.get(name).await.unwrap();

        reconcile_spec(cluster, &admin, namespace.name(), name, Some(&read["spec"])).await;
        let adopted = deployments.get(name).await.unwrap();
        assert!(adopted.labels().contains_key(ADOPTED_LABEL), "{name}");
        for _ in 0..2 {
            reconcile_spec(cluster, &admin, namespace.name(), name, None).await;
        }
        let after = deployments.get(name).await.unwrap();
        let template = |deployment: &Deployment| deployment.spec.clone().unwrap().template;
        assert_eq!(template(&after), template(&before), "{name}: stored as {}", own.data["spec"]);
        assert_eq!(after.labels()[ADOPTED_LABEL], adopted.labels()[ADOPTED_LABEL], "{name}");
        let status = objects(&admin, namespace.name()).get(name).await.unwrap().data["status"].clone();
        assert_eq!(status["resolvedDistribution"]["image"], "docker.io/llamastack/distribution-starter:0.6.0");
    }
}
