//! The CRD of DynamoGraphDeployment. Without it profiling continues, and the graph is created once the CRD is installed. The
//! published one refuses what the checks of `overrides.dgd` refuse.

use std::path::PathBuf;

use steersman_plan::dynamo::graph::merge::problem;
use steersman_testkit::kubectl_output::KubectlOutput;
use steersman_testkit::{exclusive_cluster, skip};

use super::process::LiveOperator;
use super::*;
use crate::schemas::uninstall_crd;

#[tokio::test]
async fn missing_graph_crd_defers_deployment_until_installed() {
    let Some(operator) = LiveOperator::start("no-graphs", false).await else { return };
    let test = &operator.test;
    operator.deliver_result().await;
    operator.complete_pod().await;
    let missing_crd_message = "the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1); install its CRD";
    operator
        .until("the missing CRD is reported", |status| {
            status["phase"] == "Deploying" && condition(status, "Succeeded").1.contains(missing_crd_message)
        })
        .await;
    assert_eq!(condition(&test.status().await, "DeploymentReady").0, "DeploymentCreationFailed");
    let kubectl = |command: &str| test.cluster.kubectl(&[command, "dgdr", NAME, "-n", test.namespace.name()]).unwrap();
    let shown = KubectlOutput::new("graph-crd-absent", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert_status("Deploying", "Deploying", &[missing_crd_message], &["DeploymentCreationFailed"]);

    install_crd(&test.admin, &graph_crd(), &api_resource(Family::Dgd, VERSION)).await;
    operator.until_graph().await;
    test.set_graph_state("successful").await;
    operator.until("the graph is deployed", |status| status["phase"] == "Deployed").await;

    // While the CRD is not served, the graph still exists but cannot be observed: the request must stay Deployed.
    let crds: Api<CustomResourceDefinition> = Api::all(test.admin.clone());
    let serve = async |served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": served }]);
        let patch = Patch::<()>::Json(serde_json::from_value(patch).unwrap());
        crds.patch(Family::Dgd.crd_name(), &PatchParams::default(), &patch).await.unwrap();
    };
    serve(false).await;
    operator
        .until("the graph's state is reported as unknown", |status| {
            condition(status, "DeploymentReady").0 == "DeploymentUnknown"
        })
        .await;
    let status = test.status().await;
    assert_eq!((&status["phase"], &status["dgdName"]), (&json!("Deployed"), &json!(GRAPH)));
    let unknown = "DeploymentUnknown: the cluster does not serve DynamoGraphDeployment (nvidia.com/v1beta1), so the \
                   state of \
                   DGD qwen-dgd is unknown. Install NVIDIA's Dynamo operator, or its CRD \
                   dynamographdeployments.nvidia.com;";
    let (truth, _, message) = condition_parts(&status, "Succeeded");
    assert!(truth == "Unknown" && message.starts_with(unknown), "{status}");
    let shown = KubectlOutput::new("graph-crd-unserved", "dgdr", kubectl("get"), kubectl("describe")).unwrap();
    shown.assert_status("Deployed", "Deployed", &[unknown], &["DeploymentUnknown"]);
    serve(true).await;
    operator
        .until("the graph is observed again", |status| condition(status, "DeploymentReady").0 == "DeploymentReady")
        .await;
    assert_eq!(test.status().await["phase"], "Deployed");
    operator.stop().await;
}

/// The CRD that NVIDIA publishes, without its conversion webhook. None if the upstream files are missing.
fn published_graph_crd() -> Option<CustomResourceDefinition> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../../shared/upstream/dynamo"].iter().collect();
    let text = std::fs::read_to_string(folder.join("crd-dynamographdeployments.yaml")).ok()?;
    let options = serde_saphyr::options! { budget: None };
    let mut crd: CustomResourceDefinition = serde_saphyr::from_str_with_options(&text, options).unwrap();
    crd.spec.conversion = None;
    Some(crd)
}

/// Complete graphs. The API server judges them when they are created, and admission when they are an override.
#[tokio::test]
async fn published_crd_and_admission_judge_alike() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let Some(crd) = published_graph_crd() else {
        return skip::skip("the published CRD of graphs", "no upstream files");
    };
    let admin = exclusive.cluster.admin().await.unwrap();
    install_crd(&admin, &crd, &api_resource(Family::Dgd, VERSION)).await;
    let namespace = exclusive.cluster.namespace("graphs").await.unwrap();
    let pod = "podTemplate: {spec: {containers: [{name: main, image: i}]}}";
    let component = |fields: &str| ("v1beta1", format!("{{components: [{{name: W, {fields}, {pod}}}]}}"));
    let service = |fields: &str| ("v1alpha1", format!("{{services: {{W: {{{fields}}}}}}}"));
    let graph = |fields: &str| ("v1beta1", format!("{{{fields}, components: [{{name: W, {pod}}}]}}"));
    let container = |fields: &str| {
        let pod = format!("podTemplate: {{spec: {{containers: [{{name: main, image: i, {fields}}}]}}}}");
        ("v1beta1", format!("{{components: [{{name: W, {pod}}}]}}"))
    };
    let valid = [
        component("replicas: 2, minAvailable: 2"),
        component("replicas: 0, minAvailable: 3"),
        component("multinode: {}"),
        component("modelRef: {name: m}"),
        component("runtimeVersionOverride: 1.5.0"),
        component("sharedMemorySize: 8Gi"),
        component("type: epp, eppConfig: {configMapRef: {name: a, key: k}}"),
        component("type: epp, eppConfig: {config: {plugins: [{type: a}], schedulingProfiles: []}}"),
        component("experimental: {gpuMemoryService: {extraClientContainers: [a]}, failover: {numShadows: 1}}"),
        component("providerOverride: {apiVersion: a/v1, value: {x: 1}}"),
        component("topologyConstraint: {packDomain: rack-1}"),
        graph("experimental: {kvTransferPolicy: {domain: rack, labelKey: example.com/rack}}"),
        graph("env: [{name: A, value: b}]"),
        container("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"),
        container("resources: {limits: {cpu: 2, memory: 1Gi}}"),
        service("replicas: 1, sharedMemory: {disabled: true}"),
        service("frontendSidecar: {image: i}, resources: {limits: {gpu: '1'}}"),
        service("multinode: {}, failover: {enabled: true, mode: interPod}"),
        ("v1alpha1", "{pvcs: [{name: p, create: true, size: 1Gi, storageClass: s, volumeAccessMode: m}]}".to_owned()),
    ];
    let invalid = [
        component("replicas: 1, minAvailable: 2"),
        component("modelRef: {}"),
        component("multinode: {nodeCount: 1}"),
        component("runtimeVersionOverride: latest"),
        component("sharedMemorySize: 1.5"),
        component("type: worker, eppConfig: {configMapRef: {name: a, key: k}}"),
        component("type: epp, eppConfig: {}"),
        component("type: epp, eppConfig: {config: {plugins: [], schedulingProfiles: []}, configMapRef: {key: k}}"),
        component("experimental: {gpuMemoryService: {mode: InterPod, extraClientContainers: [a]}}"),
        component("experimental: {gpuMemoryService: {extraClientPods: [{name: a, podTemplate: {}}]}}"),
        component("experimental: {checkpoint: {enabled: true, checkpointRef: a, job: {}}}"),
        component("experimental: {checkpoint: {}}"),
        component("experimental: {failover: {numShadows: 2}}"),
        component("providerOverride: {value: {}}"),
        component("topologyConstraint: {}"),
        component("compilationCache: {pvcName: ''}"),
        graph("restart: {id: a}"),
        graph("topologyConstraint: {packDomain: a}"),
        graph("experimental: {kvTransferPolicy: {domain: a}}"),
        graph("experimental: {kvTransferPolicy: {domain: a, labelKey: b, clusterTopologyName: c}}"),
        graph("experimental: {kvTransferPolicy: {domain: a, labelKey: b, preferredWeight: 0.5}}"),
        graph("experimental: {kvTransferPolicy: {domain: a, labelKey: b, enforcement: preferred}}"),
        graph("env: [{value: b}]"),
        container("env: [{name: A, valueFrom: {secretKeyRef: {name: s}}}]"),
        container("resources: {limits: {cpu: 0.5}}"),
        service("sharedMemory: {size: '0'}"),
        service("frontendSidecar: {args: [a]}"),
        service("volumeMounts: [{mountPoint: /a}]"),
        service("failover: {mode: interPod}"),
        service("gpuMemoryService: {mode: intraPod}"),
        service("autoscaling: {metrics: [{resource: {name: cpu, target: {type: Utilization}}}]}"),
        ("v1alpha1", "{pvcs: [{size: 1Gi}]}".to_owned()),
        ("v1alpha1", "{pvcs: [{name: p, create: true, size: 1Gi}]}".to_owned()),
        (
            "v1alpha1",
            format!("{{services: {{{}}}}}", (0..26).map(|n| format!("s{n}: {{}}")).collect::<Vec<_>>().join(", ")),
        ),
    ];
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let cases = valid.into_iter().map(|case| (case, true)).chain(invalid.into_iter().map(|case| (case, false)));
    let mut differences = Vec::new();
    for ((version, spec), expected) in cases {
        let spec: Value = serde_saphyr::from_str(&spec).unwrap();
        let manifest = json!({ "apiVersion": format!("nvidia.com/{version}"), "kind": "DynamoGraphDeployment",
            "metadata": { "name": "g" }, "spec": spec });
        let graphs: Api<DynamicObject> =
            Api::namespaced_with(admin.clone(), namespace.name(), &api_resource(Family::Dgd, version));
        let created = graphs.create(&dry_run, &object(manifest.clone())).await;
        let refused = match &created {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if [400, 422].contains(&status.code) => Some(status.message.clone()),
            Err(error) => panic!("{spec}: {error}"),
        };
        let ours = problem(manifest.as_object().unwrap());
        if [refused.is_none(), ours.is_none()] != [expected; 2] {
            differences.push(format!("{version} {spec}: the API server: {refused:?}; admission: {ours:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    uninstall_crd(&admin, Family::Dgd).await;
}
