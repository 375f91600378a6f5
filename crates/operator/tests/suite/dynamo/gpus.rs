//! GPU discovery from fake DCGM exporters, and the effect of the operator's settings on the profiling Job.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use steersman::dynamo::observe::hardware::{Endpoint, ExporterSource, HardwareDiscovery, Sources};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::http::{Http, Inside};
use steersman_testkit::wait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::operator::OperatorProcess;
use crate::servers::fake::{Behaviour, FakeServers};

const METRICS: &str = r#"
DCGM_FI_DEV_GPU_TEMP{gpu="0",modelName="NVIDIA H100 80GB HBM3"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",modelName="NVIDIA H100 80GB HBM3"} 41
DCGM_FI_DEV_FB_FREE{gpu="0"} 80000
DCGM_FI_DEV_FB_USED{gpu="0"} 1000
DCGM_FI_DEV_FB_RESERVED{gpu="0"} 559
DCGM_FI_DEV_NVLINK_LINK_COUNT{gpu="0"} 18
"#;

/// Creates the pod of an exporter as the GPU operator does. No kubelet runs it, so the status is set here.
async fn create_exporter(namespace: &Namespace, name: &str, label: (&str, &str), status: Value) {
    let accounts = namespace.api::<ServiceAccount>();
    if accounts.get_opt("exporter").await.unwrap().is_none() {
        let account: ServiceAccount = object(json!({ "metadata": { "name": "exporter" } }));
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
    let pod: Pod = object(json!({
        "metadata": { "name": name, "labels": { label.0: label.1, "exporter": "" }, "ownerReferences": [daemon_set()] },
        "spec": { "serviceAccountName": "exporter", "nodeName": format!("node-{name}"),
            "containers": [{ "name": "exporter", "image": "dcgm-exporter:4" }] },
    }));
    let pods = namespace.api::<Pod>();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await.unwrap();
}

/// The owner of exporters. No controller manager deletes pods of an absent owner here.
fn daemon_set() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-dcgm-exporter", "uid": "1", "controller": true })
}

fn running_at(address: &str) -> Value {
    json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] })
}

fn metrics(text: &str) -> Behaviour {
    Behaviour::Override("/metrics", 200, text.to_owned())
}

fn source(fake: &FakeServers, endpoint: Endpoint, namespace: &Namespace) -> Option<ExporterSource> {
    Some(ExporterSource { http: http(fake), endpoint, namespaces: vec![namespace.name().to_owned()] })
}

fn http(fake: &FakeServers) -> Http {
    let inside = Inside { through: Some(fake.address.to_string().parse().unwrap()) };
    steersman::llamastack::observe::server::http(inside).unwrap()
}

/// The hardware after one discovery. `seen` itself does not wait; a reconcile is requested when the result is there.
async fn discover(server: &Server, sources: Sources) -> ObservedHardware {
    let hardware = HardwareDiscovery::new(sources);
    let place = NamespacedName::new("ns", NAME);
    let before = hardware.get(server, &place).await.unwrap();
    assert!(before.awaited, "the first call must not wait for the exporters");
    let (sender, mut enqueued) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let enqueue = |place| sender.send(place).unwrap();
    let first = async {
        let first = tokio::time::timeout(wait::TIMEOUT, enqueued.recv()).await.unwrap().unwrap();
        stop.cancel();
        first
    };
    let ((), first) = tokio::join!(hardware.run(server, enqueue, stop.clone()), first);
    assert_eq!(first, place);
    hardware.get(server, &place).await.unwrap()
}

#[tokio::test]
async fn exporter_yields_gpus_or_failure_cause() {
    let Some((cluster, admin)) = cluster_with_crds().await else { return };
    let _gpu_lock = lock_gpus(&admin).await;
    let namespace = cluster.namespace("exporters").await.unwrap();
    let fake = FakeServers::start().await;
    let named = ("app.kubernetes.io/name", "dcgm-exporter");
    create_exporter(&namespace, "a", ("app", "nvidia-dcgm-exporter"), running_at("10.4.0.1")).await;
    create_exporter(&namespace, "b", ("app", "dcgm-exporter"), running_at("10.4.0.2")).await;
    create_exporter(&namespace, "c", named, running_at("10.4.0.3")).await;
    create_exporter(&namespace, "d", named, running_at("10.4.0.4")).await;
    create_exporter(&namespace, "e", named, json!({ "phase": "Pending" })).await;
    create_exporter(&namespace, "f", named, running_at("127.0.0.1")).await;
    create_exporter(&namespace, "g", named, json!({ "phase": "Running" })).await;
    create_exporter(&namespace, "h", ("app", "other"), running_at("10.4.0.5")).await;
    create_exporter(&namespace, "i", named, running_at("10.4.0.6")).await;
    // Anyone who may create pods can set the labels of an exporter.
    let forged = cluster.namespace("forged").await.unwrap();
    create_exporter(&forged, "forged", named, running_at("10.4.0.7")).await;
    let no_owner = Patch::Merge(json!({ "metadata": { "ownerReferences": null } }));
    namespace.api::<Pod>().patch("i", &PatchParams::default(), &no_owner).await.unwrap();
    fake.set("10.4.0.1:9400", metrics(METRICS));
    fake.set("10.4.0.6:9400", metrics(METRICS));
    fake.set("10.4.0.7:9400", metrics(METRICS));
    fake.set("10.4.0.2:9400", metrics("up 1"));
    fake.set("10.4.0.3:9400", Behaviour::Override("/metrics", 500, String::new()));
    fake.set("10.4.0.4:9400", metrics(&"x".repeat(3 * 1024 * 1024)));
    fake.set("127.0.0.1:9400", metrics(METRICS));
    let sources = Sources { exporters: source(&fake, Endpoint::default(), &namespace), by_labels: true };
    let observed = discover(&server(cluster, admin.clone()), sources.clone()).await;
    let Lookup::Known(exporters) = &observed.exporters else { panic!("{observed:?}") };
    let results: Vec<String> = exporters
        .iter()
        .map(|exporter| match &exporter.gpus {
            Lookup::Known(None) => "nothing".to_owned(),
            Lookup::Known(Some(gpus)) => format!("{} {} {} {}", gpus.node, gpus.count, gpus.model, gpus.memory),
            Lookup::Unknown(why) => why.replace(namespace.name(), "NS"),
        })
        .collect();
    let expected = [
        "node-a 2 NVIDIA H100 80GB HBM3 81559",
        "nothing",
        "metrics endpoint http://10.4.0.3:9400/metrics returned status 500",
        "HTTP GET http://10.4.0.4:9400/metrics failed: the response of 10.4.0.4:9400 is longer than 2097152 bytes",
        "pod NS/e is not running (Pending)",
        "HTTP GET http://127.0.0.1:9400/metrics failed: 127.0.0.1:9400 is not the address of a Service or a pod in this \
         cluster",
        "pod NS/g has no address",
        "pod NS/i is ignored: no DaemonSet controls it",
    ];
    assert_eq!(results, expected);
    let requested: Vec<String> =
        fake.take_requests().iter().map(|request| format!("{}{}", request.host, request.path)).collect();
    assert_eq!(requested.len(), 4, "only running exporters with a pod address may be asked: {requested:?}");

    // Missing permissions are reported for exporters and for nodes.
    let unprivileged = server(cluster, cluster.user("nobody").await.unwrap());
    let observed = discover(&unprivileged, sources).await;
    let (Lookup::Unknown(exporters), Lookup::Unknown(nodes)) = (&observed.exporters, &observed.nodes) else {
        panic!("{observed:?}")
    };
    assert!(exporters.contains("pods is forbidden") && nodes.contains("nodes is forbidden"), "{exporters} {nodes}");
    assert!(!observed.rdma_pod && !observed.gpu_operator);
}

#[tokio::test]
async fn hanging_exporter_times_out_and_is_reported() {
    let Some((cluster, admin)) = cluster_with_crds().await else { return };
    let _gpu_lock = lock_gpus(&admin).await;
    let namespace = cluster.namespace("hanging").await.unwrap();
    let fake = FakeServers::start().await;
    create_exporter(&namespace, "a", ("app", "dcgm-exporter"), running_at("10.5.0.1")).await;
    fake.set("10.5.0.1:9401", Behaviour::Hangs);
    let endpoint: Endpoint = "http://{POD_IP}:9401/metrics".parse().unwrap();
    let sources = Sources { exporters: source(&fake, endpoint, &namespace), by_labels: false };
    let observed = discover(&server(cluster, admin), sources).await;
    let Lookup::Known(exporters) = &observed.exporters else { panic!("{observed:?}") };
    let timed_out = exporters.iter().any(|exporter| match &exporter.gpus {
        Lookup::Unknown(why) => why.contains("10.5.0.1:9401 did not respond within 5s"),
        Lookup::Known(_) => false,
    });
    assert!(timed_out, "{exporters:?}");
    assert!(!observed.by_labels && observed.nodes.known().is_none(), "nodes must not be read without by_labels");
}

async fn until(test: &TestNamespace, operator: &OperatorProcess, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let reached = wait::eventually(what, async || Some(test.status().await).filter(&holds)).await;
    match reached {
        Ok(status) => status,
        Err(error) => panic!("{error}\n{}\n{}", test.status().await, operator.log()),
    }
}

fn condition_contains(type_: &'static str, text: &'static str) -> impl Fn(&Value) -> bool {
    move |status| condition(status, type_).1.contains(text)
}

#[tokio::test]
async fn operator_fills_hardware_and_applies_job_settings() {
    let request_spec = json!({ "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0" });
    let Some(test) = TestNamespace::new("gpus", request_spec).await else { return };
    let _gpu_lock = lock_gpus(&test.admin).await;
    let (_lease_lock, installation) = test.installation().await;
    let (namespace, fake) = (test.namespace.name().to_owned(), FakeServers::start().await);
    create_exporter(&test.namespace, "exporter", ("app", "nvidia-dcgm-exporter"), running_at("10.6.0.1")).await;
    let through = fake.address.to_string();
    let flags = ["--controllers", "dgdr", "--watch-namespace", &namespace, "--cluster-gateway", &through];
    let exporters = ["--dcgm-namespaces", &namespace];
    let flags = [&flags[..], &exporters].concat();
    // Discovery by node labels is off, because other tests create nodes.
    let image = ["--operator-image", "steersman:1", "--gpu-discovery", "off"];

    // The exporter does not answer and node labels are not read: both are reported, and the request stays Pending.
    let operator = installation.start("gpus-1", &[&flags[..], &image].concat()).await;
    let status = until(
        &test,
        &operator,
        "the cause of failed discovery is reported",
        condition_contains("Validation", "auto-discovery failed"),
    )
    .await;
    let message = condition(&status, "Validation").1;
    assert!(message.contains("metrics endpoint http://10.6.0.1:9400/metrics returned status 404"), "{message}");
    assert!(message.contains("node-label discovery is disabled"), "{message}");
    assert_eq!(status["phase"], "Pending");
    operator.until_metric(&resources(&namespace, "Pending")).await;
    let version = test.request().await.resource_version();
    drop(operator);

    // A second operator, with other settings, discovers the hardware before it writes to the request.
    fake.set("10.6.0.1:9400", metrics(METRICS));
    let account: ServiceAccount = object(json!({ "metadata": { "name": names::SERVICE_ACCOUNT } }));
    test.namespace.api().create(&PostParams::default(), &account).await.unwrap();
    // A missing token would be looked up again, which counts as `requeue` and not as `success`.
    let token: Secret = object(json!({ "metadata": { "name": names::TOKEN_SECRET } }));
    test.namespace.api().create(&PostParams::default(), &token).await.unwrap();
    let settings = ["--operator-image-pull-policy", "Never", "--dgdr-profiling-cluster-role", ""];
    let addresses = ["--dgdr-nats-address", "nats://nats:4222", "--dgdr-etcd-address", "etcd:2379"];
    assert_eq!(test.request().await.resource_version(), version);
    let operator = installation.start("gpus-2", &[&flags[..], &image, &settings, &addresses].concat()).await;
    until(&test, &operator, "profiling begins", |status| status["phase"] == "Profiling").await;
    let hardware = &test.request().await.data["spec"]["hardware"];
    let found = json!({ "gpuSku": "h100_sxm", "vramMb": 81_559, "numGpusPerNode": 2, "totalGpus": 2,
        "interconnect": "nvlink" });
    assert_eq!(*hardware, found, "only node labels could report RDMA");
    let pod = json!(test.job().await.spec.unwrap().template);
    assert_eq!(pod["metadata"]["labels"][names::LABEL_PROFILED], NAME);
    let containers = &pod["spec"]["containers"];
    let env = containers[0]["env"].as_array().unwrap();
    for (name, value) in [("NATS_SERVER", "nats://nats:4222"), ("ETCD_ENDPOINTS", "etcd:2379")] {
        assert!(env.contains(&json!({ "name": name, "value": value })), "{env:?}");
    }
    assert_eq!((&containers[1]["name"], &containers[1]["imagePullPolicy"]), (&json!("output-copier"), &json!("Never")));
    let bindings = test.namespace.api::<RoleBinding>().list(&ListParams::default()).await.unwrap();
    assert_eq!(bindings.items.len(), 0, "an empty cluster role means that the account is managed elsewhere");
    assert_metrics(&test, &operator, &namespace).await;
}

const TYPE_LABEL: &str = "resource_type=\"DynamoGraphDeploymentRequest\"";

fn resources(namespace: &str, phase: &str) -> String {
    format!("dynamo_operator_resources_total{{{TYPE_LABEL},namespace=\"{namespace}\",status=\"{phase}\"}} 1")
}

/// Asserts that the metrics endpoint has the series of the request until the request is deleted.
async fn assert_metrics(test: &TestNamespace, operator: &OperatorProcess, namespace: &str) {
    operator.until_metric(&resources(namespace, "Profiling")).await;
    operator
        .until_metric(&format!(
            "dynamo_operator_reconcile_total{{{TYPE_LABEL},namespace=\"{namespace}\",result=\"success\"}}"
        ))
        .await;
    let time = format!(
        "dynamo_operator_reconcile_duration_seconds_count{{{TYPE_LABEL},namespace=\"{namespace}\",result=\"success\"}}"
    );
    operator.until_metric(&time).await;
    test.requests().delete(NAME, &Default::default()).await.unwrap();
    let label = format!("namespace=\"{namespace}\"");
    let gone = async || operator.metrics("/metrics", None).await.filter(|(_, text)| !text.contains(&label));
    let gone = wait::eventually("the series of the namespace are removed", gone).await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    operator.assert_log_is_json();
}
