//! What an operator says of servers and pods: providers and health as the servers tell them, and why pods are not ready.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_testkit::play::Play;
use steersman_testkit::{Flavour, condition, wait};

use super::{World, starter, world};
use crate::process::operator::Operator;
use crate::schemas::uninstall;
use crate::servers::fake::{Fake, Plays};

/// The object once this holds of one of its conditions.
async fn until(
    world: &World,
    operator: &Operator,
    name: &str,
    type_: &str,
    holds: impl Fn(&Value) -> bool,
) -> DynamicObject {
    let is = |object: &DynamicObject| holds(condition(&object.data, type_));
    let what = format!("{type_} of {name}");
    let reached = wait::eventually(&what, async || world.objects().get_opt(name).await.ok()?.filter(is)).await;
    match reached {
        Ok(object) => object,
        Err(error) => {
            let last = world.objects().get_opt(name).await.unwrap().map(|object| object.data["status"].to_string());
            panic!("{error}\n{last:?}\n{}", operator.log())
        }
    }
}

fn host(world: &World, name: &str) -> String {
    format!("{name}-service.{}.svc.cluster.local:8321", world.namespace.name())
}

/// Each pass writes the status at most once; what is left after all has come to rest is what was worth a write.
fn status_writes(world: &World, identity: &str, name: &str) -> usize {
    let uri = format!("/llamastackdistributions/{name}/status");
    world.writes_of(identity).iter().filter(|written| written.uri.contains(&uri)).count()
}

#[tokio::test]
async fn providers_version_and_health_are_the_server_s_own_words() {
    let Some(world) = world(Flavour::Full, "servers").await else { return };
    let fake = Fake::start().await;
    fake.play(
        &host(&world, "starter"),
        Plays::Well(json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
            "config": { "base_url": "http://me:hush@vllm:8000/v1", "api_token": "hush", "max_tokens": 4096, "tls": null,
                "share": 0.1 },
            "health": { "status": "Error", "message": "no answer with api_key=hush", "time": 12 } }])),
    );
    let through = fake.address.to_string();
    let operator = world.place.start("servers", &["--reach-through", &through]).await;
    world.create("starter", starter()).await;
    let told = until(&world, &operator, "starter", "HealthCheck", |said| said["status"] == "True").await;
    let status = &told.data["status"];
    assert_eq!(condition(&told.data, "HealthCheck")["message"], "Health check passed");
    assert_eq!(status["version"]["llamaStackServerVersion"], "0.7.1");
    assert_eq!(status["serviceURL"], format!("http://{}", host(&world, "starter")));
    assert_eq!(
        status["distributionConfig"]["providers"],
        json!([{ "api": "inference", "provider_id": "vllm", "provider_type": "remote::vllm",
            "config": { "base_url": "http://********@vllm:8000/v1", "api_token": "********", "max_tokens": 4096,
                "tls": null, "share": 0.1 },
            "health": { "status": "Error", "message": "no answer with api_key=********" } }])
    );
    assert!(!status.to_string().contains("hush") && !operator.log().contains("hush"));

    // Another template is another server: it is asked at once, and what it no longer says is no longer shown.
    fake.play(&host(&world, "starter"), Plays::But("/v1/providers", 500, "hush".into()));
    let changed =
        Patch::Merge(json!({ "spec": { "workload": { "overrides": { "env": [{ "name": "A", "value": "b" }] } } } }));
    world.objects().patch("starter", &PatchParams::default(), &changed).await.unwrap();
    let failing = |said: &Value| said["message"].as_str().is_some_and(|said| said.contains("/v1/providers failed"));
    let told = until(&world, &operator, "starter", "HealthCheck", failing).await;
    let said = condition(&told.data, "HealthCheck");
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("HealthCheckFailed")));
    let status = &told.data["status"];
    assert_eq!(status["distributionConfig"]["providers"], Value::Null);
    assert_eq!(status["version"]["llamaStackServerVersion"], "0.7.1");
    assert_eq!(status["phase"], "Ready", "its pods are");

    // It is well again before anybody changes anything.
    fake.play(&host(&world, "starter"), Plays::Well(json!([])));
    until(&world, &operator, "starter", "HealthCheck", |said| said["status"] == "True").await;

    // An operator that starts anew asks anew, hears the same and writes nothing.
    let before = world.objects().get("starter").await.unwrap();
    operator.signal(rustix::process::Signal::TERM);
    fake.asked();
    let next = world.place.start("servers-2", &["--reach-through", &through]).await;
    wait::eventually("the server is asked again", async || {
        fake.asked().iter().any(|asked| asked.path == "/v1/providers").then_some(())
    })
    .await
    .unwrap_or_else(|error| panic!("{error}\n{}", next.log()));
    next.until_metric("controller_runtime_reconcile_total{controller=\"llsd\",result=\"success\"}").await;
    let renewals = || world.writes_of("servers-2").iter().filter(|written| written.is_lease()).count();
    let some = renewals();
    wait::eventually("the Lease is renewed", async || (renewals() > some + 1).then_some(())).await.unwrap();
    let after = world.objects().get("starter").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "{}", after.data["status"]);
    next.assert_log_is_json();
    uninstall(&world.admin, Family::Llsd).await;
}

#[tokio::test]
async fn pods_that_are_not_ready_say_why_until_they_are() {
    let Some(world) = world(Flavour::Full, "troubles").await else { return };
    world.namespace.play(Some(Play::PullError)).await.unwrap();
    let operator = world.place.start("troubles", &[]).await;
    world.create("starter", starter()).await;
    let says = |word: &'static str| {
        move |said: &Value| {
            said["status"] == "False" && said["message"].as_str().is_some_and(|said| said.contains(word))
        }
    };
    let told = until(&world, &operator, "starter", "DeploymentReady", says("ImagePullBackOff")).await;
    let why = "ImagePullBackOff: container llama-stack cannot get image docker.io/llamastack/distribution-starter:0.7.1: rpc \
               error: code = NotFound desc = failed to pull and unpack image \
               \"docker.io/llamastack/distribution-starter:0.7.1\": not found. Check the name and the tag, and the Secrets to \
               pull it with; the pod goes on by itself once the image is there";
    assert_eq!(condition(&told.data, "DeploymentReady")["message"], format!("Deployment is pending: {why}"));
    assert_eq!(condition(&told.data, "Available")["message"], format!("0/1 replicas available: {why}"));

    let pods: Api<Pod> = world.namespace.all();
    let mine = ListParams::default().labels("app.kubernetes.io/instance=starter");
    let play = async |play: Play| {
        for pod in pods.list(&mine).await.unwrap().items {
            let name = pod.metadata.name.unwrap();
            pods.patch(&name, &PatchParams::default(), &Patch::Merge(play.patch())).await.unwrap();
        }
    };
    play(Play::Crash).await;
    let told = until(&world, &operator, "starter", "DeploymentReady", says("CrashLoopBackOff")).await;
    let message = condition(&told.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("container llama-stack ended with exit code 1 (Error). Its log says why: kubectl"),
        "{message}"
    );

    // The kubelet goes round in circles; nobody writes of it.
    let before = status_writes(&world, "troubles", "starter");
    let restarts = async |runs: bool| {
        let listed = pods.list(&mine).await.unwrap().items;
        let container = listed[0].status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].clone();
        (container.state.unwrap().running.is_some() == runs).then_some(container.restart_count)
    };
    for count in 1..4 {
        play(Play::Unready).await;
        wait::eventually("it runs", async || restarts(true).await).await.unwrap();
        play(Play::Crash).await;
        let crashed = async || restarts(false).await.filter(|restarts| *restarts > count);
        wait::eventually("it has crashed once more", crashed).await.unwrap();
    }
    play(Play::Run).await;
    let told = until(&world, &operator, "starter", "DeploymentReady", |said| said["status"] == "True").await;
    assert_eq!(condition(&told.data, "DeploymentReady")["message"], "Deployment is ready");
    let writes = status_writes(&world, "troubles", "starter") - before;
    assert!(writes <= 3, "ready, and what the server said then: {writes} writes");

    let mut large = starter();
    large["workload"] = json!({ "resources": { "requests": { "cpu": "1000" } } });
    world.create("large", large).await;
    let told = until(&world, &operator, "large", "DeploymentReady", says("Unschedulable")).await;
    let message = condition(&told.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("no node takes the pod: Insufficient cpu"), "{message}");
    assert!(message.ends_with("ask for less in spec.workload.resources"), "{message}");

    // What kwok does not play, as a kubelet would say it.
    world.namespace.play(Some(Play::Pending)).await.unwrap();
    world.create("keyless", starter()).await;
    let keyless = ListParams::default().labels("app.kubernetes.io/instance=keyless");
    let accepted = async || {
        let pod = pods.list(&keyless).await.ok()?.items.into_iter().next()?;
        pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(pod)
    };
    let mut pod = wait::eventually("the pod was accepted", accepted).await.unwrap();
    let mut containers = pod.status.take().unwrap().container_statuses.unwrap();
    let waiting =
        json!({ "waiting": { "reason": "CreateContainerConfigError", "message": "secret \"vllm\" not found" } });
    containers[0].state = serde_json::from_value(waiting).unwrap();
    let status = Patch::Merge(json!({ "status": { "containerStatuses": containers } }));
    pods.patch_status(&pod.metadata.name.unwrap(), &PatchParams::default(), &status).await.unwrap();
    let told = until(&world, &operator, "keyless", "DeploymentReady", says("CreateContainerConfigError")).await;
    let message = condition(&told.data, "DeploymentReady")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("cannot start: secret \"vllm\" not found. Create what is missing"), "{message}");
    operator.assert_log_is_json();
    uninstall(&world.admin, Family::Llsd).await;
}
