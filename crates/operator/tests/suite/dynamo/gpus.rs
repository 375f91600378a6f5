//! Which GPUs there are, by exporters that the tests play; and what the operator's settings make of a Job.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use steersman::dynamo::observe::hardware::{Endpoint, Hardware, Sources};
use steersman_plan::dynamo::hardware::ObservedHardware;
use steersman_reconcile::{Lookup, NamespacedName};
use steersman_runtime::http::{Http, Inside};
use steersman_testkit::wait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::operator::Operator;
use crate::servers::fake::{Fake, Plays};

const METRICS: &str = r#"
DCGM_FI_DEV_GPU_TEMP{gpu="0",modelName="NVIDIA H100 80GB HBM3"} 40
DCGM_FI_DEV_GPU_TEMP{gpu="1",modelName="NVIDIA H100 80GB HBM3"} 41
DCGM_FI_DEV_FB_FREE{gpu="0"} 80000
DCGM_FI_DEV_FB_USED{gpu="0"} 1000
DCGM_FI_DEV_FB_RESERVED{gpu="0"} 559
DCGM_FI_DEV_NVLINK_LINK_COUNT{gpu="0"} 18
"#;

/// An exporter's pod as the GPU operator makes it, where nothing runs it.
async fn exporter(namespace: &Namespace, name: &str, label: (&str, &str), status: Value) {
    let accounts = namespace.all::<ServiceAccount>();
    if accounts.get_opt("exporter").await.unwrap().is_none() {
        let account: ServiceAccount = object(json!({ "metadata": { "name": "exporter" } }));
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
    let pod: Pod = object(json!({
        "metadata": { "name": name, "labels": { label.0: label.1, "exporter": "" } },
        "spec": { "serviceAccountName": "exporter", "nodeName": format!("node-{name}"),
            "containers": [{ "name": "exporter", "image": "dcgm-exporter:4" }] },
    }));
    let pods = namespace.all::<Pod>();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({ "status": status }))).await.unwrap();
}

fn running(address: &str) -> Value {
    json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] })
}

fn metrics(text: &str) -> Plays {
    Plays::But("/metrics", 200, text.to_owned())
}

fn http(fake: &Fake) -> Http {
    let inside = Inside { through: Some(fake.address.to_string().parse().unwrap()) };
    steersman::llamastack::observe::server::http(inside).unwrap()
}

/// What is known once somebody has looked.
async fn looked(server: &Server, sources: Sources) -> ObservedHardware {
    let hardware = Hardware::new(sources);
    let place = NamespacedName::new("ns", NAME);
    let before = hardware.seen(server, &place).await.unwrap();
    assert!(before.awaited, "nobody waits for an answer");
    let (tell, mut woken) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let wake = |place| tell.send(place).unwrap();
    let woken = async {
        let woken = tokio::time::timeout(wait::LIMIT, woken.recv()).await.unwrap().unwrap();
        stop.cancel();
        woken
    };
    let ((), woken) = tokio::join!(hardware.run(server, wake, stop.clone()), woken);
    assert_eq!(woken, place);
    hardware.seen(server, &place).await.unwrap()
}

#[tokio::test]
async fn every_exporter_says_which_gpus_its_node_has_or_why_it_says_nothing() {
    let Some((cluster, admin)) = with_crds().await else { return };
    let _turn = without_gpus(&admin).await;
    let namespace = cluster.namespace("exporters").await.unwrap();
    let fake = Fake::start().await;
    let named = ("app.kubernetes.io/name", "dcgm-exporter");
    exporter(&namespace, "a", ("app", "nvidia-dcgm-exporter"), running("10.4.0.1")).await;
    exporter(&namespace, "b", ("app", "dcgm-exporter"), running("10.4.0.2")).await;
    exporter(&namespace, "c", named, running("10.4.0.3")).await;
    exporter(&namespace, "d", named, running("10.4.0.4")).await;
    exporter(&namespace, "e", named, json!({ "phase": "Pending" })).await;
    exporter(&namespace, "f", named, running("127.0.0.1")).await;
    exporter(&namespace, "g", named, json!({ "phase": "Running" })).await;
    exporter(&namespace, "h", ("app", "other"), running("10.4.0.5")).await;
    fake.play("10.4.0.1:9400", metrics(METRICS));
    fake.play("10.4.0.2:9400", metrics("up 1"));
    fake.play("10.4.0.3:9400", Plays::But("/metrics", 500, String::new()));
    fake.play("10.4.0.4:9400", metrics(&"x".repeat(3 * 1024 * 1024)));
    fake.play("127.0.0.1:9400", metrics(METRICS));
    let sources = Sources { exporters: Some((http(&fake), Endpoint::default())), by_labels: true };
    let seen = looked(&server(cluster, admin.clone()), sources.clone()).await;
    let Lookup::Known(exporters) = &seen.exporters else { panic!("{seen:?}") };
    let said: Vec<String> = exporters
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
        "HTTP GET http://10.4.0.4:9400/metrics failed: the answer of 10.4.0.4:9400 is longer than 2097152 bytes",
        "pod NS/e is not running (Pending)",
        "HTTP GET http://127.0.0.1:9400/metrics failed: 127.0.0.1:9400 is not the address of a Service or a pod in this \
         cluster",
        "pod NS/g has no address",
    ];
    assert_eq!(said, expected);
    let asked: Vec<String> = fake.asked().iter().map(|asked| format!("{}{}", asked.host, asked.path)).collect();
    assert_eq!(asked.len(), 4, "others are not asked: {asked:?}");

    // Whoever may see nothing hears of it, from both sides.
    let nobody = server(cluster, cluster.user("nobody").await.unwrap());
    let seen = looked(&nobody, sources).await;
    let (Lookup::Unknown(exporters), Lookup::Unknown(nodes)) = (&seen.exporters, &seen.nodes) else {
        panic!("{seen:?}")
    };
    assert!(exporters.contains("pods is forbidden") && nodes.contains("nodes is forbidden"), "{exporters} {nodes}");
    assert!(!seen.rdma_pod && !seen.gpu_operator);
}

#[tokio::test]
async fn an_exporter_that_hangs_keeps_nobody_and_is_told_of() {
    let Some((cluster, admin)) = with_crds().await else { return };
    let _turn = without_gpus(&admin).await;
    let namespace = cluster.namespace("hanging").await.unwrap();
    let fake = Fake::start().await;
    exporter(&namespace, "a", ("app", "dcgm-exporter"), running("10.5.0.1")).await;
    fake.play("10.5.0.1:9401", Plays::Hangs);
    let endpoint: Endpoint = "http://{POD_IP}:9401/metrics".parse().unwrap();
    let sources = Sources { exporters: Some((http(&fake), endpoint)), by_labels: false };
    let seen = looked(&server(cluster, admin), sources).await;
    let Lookup::Known(exporters) = &seen.exporters else { panic!("{seen:?}") };
    let hung = exporters.iter().any(|exporter| match &exporter.gpus {
        Lookup::Unknown(why) => why.contains("10.5.0.1:9401 gave no answer within 5s"),
        Lookup::Known(_) => false,
    });
    assert!(hung, "{exporters:?}");
    assert!(!seen.by_labels && seen.nodes.known().is_none(), "nodes are not looked at");
}

async fn until(scene: &Scene, operator: &Operator, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let reached = wait::eventually(what, async || Some(scene.status().await).filter(&holds)).await;
    match reached {
        Ok(status) => status,
        Err(error) => panic!("{error}\n{}\n{}", scene.status().await, operator.log()),
    }
}

fn says(type_: &'static str, word: &'static str) -> impl Fn(&Value) -> bool {
    move |status| condition(status, type_).1.contains(word)
}

#[tokio::test]
async fn a_request_without_hardware_gets_that_of_the_exporters_and_the_job_what_the_settings_say() {
    let wish = json!({ "model": "Qwen/Qwen3-0.6B", "image": "planner:1.4.0" });
    let Some(scene) = Scene::new("gpus", wish).await else { return };
    let _gpus = without_gpus(&scene.admin).await;
    let (_turn, place) = scene.place().await;
    let (namespace, fake) = (scene.namespace.name().to_owned(), Fake::start().await);
    exporter(&scene.namespace, "exporter", ("app", "nvidia-dcgm-exporter"), running("10.6.0.1")).await;
    let through = fake.address.to_string();
    let flags = ["--controllers", "dgdr", "--watch-namespace", &namespace, "--reach-through", &through];
    // Other tests have nodes.
    let image = ["--operator-image", "steersman:1", "--gpu-discovery", "off"];

    // Nobody answers, and nodes are not looked at: both are told, and nothing is lost by it.
    let operator = place.start("gpus-1", &[&flags[..], &image].concat()).await;
    let status = until(&scene, &operator, "why there are no GPUs", says("Validation", "auto-discovery failed")).await;
    let message = condition(&status, "Validation").1;
    assert!(message.contains("metrics endpoint http://10.6.0.1:9400/metrics returned status 404"), "{message}");
    assert!(message.contains("node-label discovery is disabled"), "{message}");
    assert_eq!(status["phase"], "Pending");
    operator.until_metric(&resources(&namespace, "Pending")).await;
    let version = scene.request().await.resource_version();
    drop(operator);

    // Another operator looks before it says anything else. With settings of its own.
    fake.play("10.6.0.1:9400", metrics(METRICS));
    let account: ServiceAccount = object(json!({ "metadata": { "name": names::SERVICE_ACCOUNT } }));
    scene.namespace.all().create(&PostParams::default(), &account).await.unwrap();
    let settings = ["--operator-image-pull-policy", "Never", "--dgdr-profiling-cluster-role", ""];
    let addresses = ["--dgdr-nats-address", "nats://nats:4222", "--dgdr-etcd-address", "etcd:2379"];
    assert_eq!(scene.request().await.resource_version(), version);
    let operator = place.start("gpus-2", &[&flags[..], &image, &settings, &addresses].concat()).await;
    until(&scene, &operator, "profiling begins", |status| status["phase"] == "Profiling").await;
    let hardware = &scene.request().await.data["spec"]["hardware"];
    let found = json!({ "gpuSku": "h100_sxm", "vramMb": 81_559, "numGpusPerNode": 2, "totalGpus": 2,
        "interconnect": "nvlink" });
    assert_eq!(*hardware, found, "and of RDMA only nodes would tell");
    let pod = json!(scene.job().await.spec.unwrap().template);
    assert_eq!(pod["metadata"]["labels"][names::LABEL_PROFILED], NAME);
    let containers = &pod["spec"]["containers"];
    let env = containers[0]["env"].as_array().unwrap();
    for (name, value) in [("NATS_SERVER", "nats://nats:4222"), ("ETCD_ENDPOINTS", "etcd:2379")] {
        assert!(env.contains(&json!({ "name": name, "value": value })), "{env:?}");
    }
    assert_eq!((&containers[1]["name"], &containers[1]["imagePullPolicy"]), (&json!("output-copier"), &json!("Never")));
    let bindings = scene.namespace.all::<RoleBinding>().list(&ListParams::default()).await.unwrap();
    assert_eq!(bindings.items.len(), 0, "the account is managed elsewhere");
    measured(&scene, &operator, &namespace).await;
}

const OF: &str = "resource_type=\"DynamoGraphDeploymentRequest\"";

fn resources(namespace: &str, phase: &str) -> String {
    format!("dynamo_operator_resources_total{{{OF},namespace=\"{namespace}\",status=\"{phase}\"}} 1")
}

/// What the operator's endpoint tells of the one request, and no longer once that is gone.
async fn measured(scene: &Scene, operator: &Operator, namespace: &str) {
    operator.until_metric(&resources(namespace, "Profiling")).await;
    operator
        .until_metric(&format!("dynamo_operator_reconcile_total{{{OF},namespace=\"{namespace}\",result=\"success\"}}"))
        .await;
    let time = format!(
        "dynamo_operator_reconcile_duration_seconds_count{{{OF},namespace=\"{namespace}\",result=\"success\"}}"
    );
    operator.until_metric(&time).await;
    scene.requests().delete(NAME, &Default::default()).await.unwrap();
    let label = format!("namespace=\"{namespace}\"");
    let gone = async || operator.metrics("/metrics", None).await.filter(|(_, text)| !text.contains(&label));
    let gone = wait::eventually("nothing is told of the namespace", gone).await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    operator.assert_log_is_json();
}
