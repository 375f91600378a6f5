//! The status of servers and pods in a running operator: providers and health from the servers, and the cause of pods
//! that are not ready.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::pod_behaviour::PodBehaviour;
use steersman_testkit::{Flavour, condition, wait};

use super::{TestEnv, starter, test_env};
use crate::process::operator::OperatorProcess;
use crate::schemas::uninstall_crd;
use crate::servers::fake::{Behaviour, FakeServers};

/// Waits until `holds` is true of a condition, and returns the object.
async fn until(
    env: &TestEnv,
    operator: &OperatorProcess,
    name: &str,
    type_: &str,
    holds: impl Fn(&Value) -> bool,
) -> DynamicObject {
    let is = |object: &DynamicObject| holds(condition(&object.data, type_));
    let what = format!("{type_} of {name}");
    let reached = wait::eventually(&what, async || env.objects().get_opt(name).await.ok()?.filter(is)).await;
    match reached {
        Ok(object) => object,
        Err(error) => {
            let last = env.objects().get_opt(name).await.unwrap().map(|object| object.data["status"].to_string());
            panic!("{error}\n{last:?}\n{}", operator.log())
        }
    }
}

fn host(env: &TestEnv, name: &str) -> String {
    format!("{name}-service.{}.svc.cluster.local:8321", env.namespace.name())
}

/// Number of status writes by one operator. Each reconcile writes the status at most once.
fn status_writes(env: &TestEnv, identity: &str, name: &str) -> usize {
    let uri = format!("/llamastackdistributions/{name}/status");
    env.writes_of(identity).iter().filter(|written| written.uri.contains(&uri)).count()
}

#[tokio::test]
async fn status_mirrors_server_providers_and_health() {
    let Some(env) = test_env(Flavour::Full, "servers").await else { return };
    let fake = FakeServers::start().await;
    fake.set(
        &host(&env, "starter"),
        Behaviour::Healthy(json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
            "config": { "base_url": "http://me:hush@vllm:8000/v1", "api_token": "hush", "max_tokens": 4096, "tls": null,
                "share": 0.1 },
            "health": { "status": "Error", "message": "no answer with api_key=hush", "time": 12 } }])),
    );
    let through = fake.address.to_string();
    let operator = env.installation.start("servers", &["--cluster-gateway", &through]).await;
    env.create("starter", starter()).await;
    let object = until(&env, &operator, "starter", "HealthCheck", |found| found["status"] == "True").await;
    let status = &object.data["status"];
    assert_eq!(condition(&object.data, "HealthCheck")["message"], "Health check passed");
    assert_eq!(status["version"]["llamaStackServerVersion"], "0.7.1");
    assert_eq!(status["serviceURL"], format!("http://{}", host(&env, "starter")));
    assert_eq!(
        status["distributionConfig"]["providers"],
        json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
            "config": { "base_url": "http://********@vllm:8000/v1", "api_token": "********", "max_tokens": 4096,
                "tls": null, "share": 0.1 },
            "health": { "status": "Error", "message": "no answer with api_key=********" } }])
    );
    assert!(!status.to_string().contains("hush") && !operator.log().contains("hush"));

    // A new pod template means a new server: it is polled at once, and the old providers are removed from the status.
    fake.set(&host(&env, "starter"), Behaviour::Override("/v1/providers", 500, "hush".into()));
    let changed =
        Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } } }));
    env.objects().patch("starter", &PatchParams::default(), &changed).await.unwrap();
    let failing = |found: &Value| found["message"].as_str().is_some_and(|found| found.contains("/v1/providers failed"));
    let object = until(&env, &operator, "starter", "HealthCheck", failing).await;
    let found = condition(&object.data, "HealthCheck");
    assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("HealthCheckFailed")));
    let status = &object.data["status"];
    assert_eq!(status["distributionConfig"]["providers"], Value::Null);
    assert_eq!(status["version"]["llamaStackServerVersion"], "0.7.1");
    assert_eq!(status["phase"], "Initializing", "the pods are ready, but the server does not work");
    assert_eq!(condition(&object.data, "DeploymentReady")["status"], "True");

    // The server recovers without a change of the object.
    fake.set(&host(&env, "starter"), Behaviour::Healthy(json!([])));
    until(&env, &operator, "starter", "HealthCheck", |found| found["status"] == "True").await;

    // A restarted operator polls again, gets the same answer and writes nothing.
    let before = env.objects().get("starter").await.unwrap();
    operator.signal(rustix::process::Signal::TERM);
    fake.take_requests();
    let next = env.installation.start("servers-2", &["--cluster-gateway", &through]).await;
    wait::eventually("the server is polled again", async || {
        fake.take_requests().iter().any(|request| request.path == "/v1/providers").then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", next.log()));
    next.until_metric("controller_runtime_reconcile_total{controller=\"llsd\",result=\"success\"}").await;
    let renewals = || env.writes_of("servers-2").iter().filter(|written| written.is_lease()).count();
    let before_renewals = renewals();
    wait::eventually("the Lease is renewed", async || (renewals() > before_renewals + 1).then_some(())).await.unwrap();
    let after = env.objects().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "{}", after.data["status"]);
    next.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}

#[tokio::test]
async fn unready_pods_report_cause_until_ready() {
    let Some(env) = test_env(Flavour::Full, "troubles").await else { return };
    env.namespace.set_pod_behaviour(Some(PodBehaviour::PullError)).await.unwrap();
    let operator = env.installation.start("troubles", &[]).await;
    env.create("starter", starter()).await;
    let reports = |text: &'static str| {
        move |found: &Value| {
            found["status"] == "False" && found["message"].as_str().is_some_and(|found| found.contains(text))
        }
    };
    // The pod can be seen before the Deployment counts it.
    let object = until(&env, &operator, "starter", "Available", reports("replicas available: ImagePullBackOff")).await;
    let why = "ImagePullBackOff: container llama-stack cannot pull image \
               docker.io/llamastack/distribution-starter:0.7.1: rpc \
               error: code = NotFound desc = failed to pull and unpack image \
               \"docker.io/llamastack/distribution-starter:0.7.1\": not found. Check the name, the tag and the pull \
               secrets; the pod starts as soon as the image can be pulled";
    assert_eq!(condition(&object.data, "DeploymentReady")["message"], format!("Deployment is pending: {why}"));
    assert_eq!(condition(&object.data, "Available")["message"], format!("0/1 replicas available: {why}"));

    let pods: Api<Pod> = env.namespace.api();
    let starter_pods = ListParams::default().labels("app.kubernetes.io/instance=starter");
    let set_pods = async |play: PodBehaviour| {
        for pod in pods.list(&starter_pods).await.unwrap().items {
            let name = pod.metadata.name.unwrap();
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(play.merge_patch())).await.unwrap();
        }
    };
    set_pods(PodBehaviour::Crash).await;
    let object = until(&env, &operator, "starter", "DeploymentReady", reports("CrashLoopBackOff")).await;
    let message = condition(&object.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("container llama-stack exited with code 1 (Error). Read its log: kubectl"), "{message}");

    // Repeated restarts by the kubelet cause no status write.
    let before = status_writes(&env, "troubles", "starter");
    let restarts = async |runs: bool| {
        let listed = pods.list(&starter_pods).await.unwrap().items;
        let container = listed[0].status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone();
        (container.state.unwrap().running.is_some() == runs).then_some(container.restart_count)
    };
    for count in 1..4 {
        set_pods(PodBehaviour::Unready).await;
        wait::eventually("the container runs", async || restarts(true).await).await.unwrap();
        set_pods(PodBehaviour::Crash).await;
        let crashed = async || restarts(false).await.filter(|restarts| *restarts > count);
        wait::eventually("the container has crashed again", crashed).await.unwrap();
    }
    set_pods(PodBehaviour::Run).await;
    let object = until(&env, &operator, "starter", "DeploymentReady", |found| found["status"] == "True").await;
    assert_eq!(condition(&object.data, "DeploymentReady")["message"], "Deployment is ready");
    let writes = status_writes(&env, "troubles", "starter") - before;
    assert!(writes <= 3, "expected at most: ready, and two results of polls; got {writes} writes");

    let mut large = starter();
    large["workload"] = json!({ "resources": { "requests": { "cpu": "1000" } } });
    env.create("large", large).await;
    let object = until(&env, &operator, "large", "DeploymentReady", reports("Unschedulable")).await;
    let message = condition(&object.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no node fits the pod: Insufficient cpu"), "{message}");
    assert!(message.ends_with("lower spec.workload.resources"), "{message}");

    // kwok has no stage for this error; set the status as a kubelet does.
    env.namespace.set_pod_behaviour(Some(PodBehaviour::Pending)).await.unwrap();
    env.create("keyless", starter()).await;
    let keyless = ListParams::default().labels("app.kubernetes.io/instance=keyless");
    let accepted = async || {
        let pod = pods.list(&keyless).await.ok()?.items.into_iter().next()?;
        pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(pod)
    };
    let mut pod = wait::eventually("the pod has container statuses", accepted).await.unwrap();
    let mut containers = pod.status.take().unwrap().container_statuses.unwrap();
    let waiting =
        json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "secret \"vllm\" not found" } });
    containers[0].state = serde_json::from_value(waiting).unwrap();
    let status = Patch::Merge(json!({ "status": { "containerStatuses": containers } }));
    pods.patch_status(&pod.metadata.name.unwrap(), &PatchParams::default(), &status).await.unwrap();
    let object = until(&env, &operator, "keyless", "DeploymentReady", reports("CreateContainerConfigError")).await;
    let message = condition(&object.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("cannot start: secret \"vllm\" not found. Create the missing object or key"), "{message}");
    operator.assert_log_is_json();
    uninstall_crd(&env.admin, Family::Llsd).await;
}
