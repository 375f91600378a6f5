//! `steersman run --controllers dgdr` as a process, under the operator's ServiceAccount with exactly the shipped roles.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use rustix::process::Signal;
use steersman_testkit::pod_behaviour::{BEHAVIOUR_ANNOTATION, PodBehaviour};
use steersman_testkit::{ExclusiveCluster, exclusive_cluster, wait};

use super::*;
use crate::process::operator::{OperatorProcess, TestInstallation};
use crate::schemas::uninstall_crd;

/// Waits for a phase without reconciling: only the operator's watches can trigger it.
async fn until_phase(requests: &Api<DynamicObject>, phase: &str, operator: &OperatorProcess) {
    let is = |object: &DynamicObject| object.data["status"]["phase"] == phase;
    let what = format!("the request is {phase}");
    let reached = wait::eventually(&what, async || requests.get_opt(NAME).await.ok()?.filter(is));
    reached.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

#[tokio::test]
async fn watches_drive_request_through_all_phases() {
    let Some(test) = TestNamespace::new("process", spec(json!({}))).await else { return };
    let (_lease_lock, installation) = test.installation().await;
    let namespace = test.namespace.name();
    let flags = ["--controllers", "dgdr", "--watch-namespace", namespace, "--operator-image", "steersman:1"];
    let operator = installation.start("dgdr", &flags).await;
    let requests = test.requests();
    until_phase(&requests, "Profiling", &operator).await;

    // The output is written by the Job's ServiceAccount, with the permissions that the operator granted to it.
    let account = test.cluster.service_account(namespace, names::SERVICE_ACCOUNT).await.unwrap();
    wait::until_allowed(&account, "create", "", "configmaps", Some(namespace)).await.unwrap();
    let uid = test.request().await.uid().unwrap();
    deliver_output(&account, namespace, &uid, json!({ "phase": "SweepingDecode", "message": "Benchmarking 1/2" }))
        .await;
    let relayed = wait::eventually("the sub-phase is relayed", async || {
        (test.status().await["profilingPhase"] == "SweepingDecode").then_some(())
    });
    relayed.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let pull = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
    set_profiler_pod(&test.namespace, "Pending", pull).await;
    let reported = wait::eventually("the image pull error is reported", async || {
        test.phase_and_message().await.1.contains("ErrImagePull").then_some(())
    });
    reported.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let result = json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT });
    deliver_output(&account, namespace, &uid, result).await;
    test.complete_job().await;
    until_phase(&requests, "Deploying", &operator).await;
    let created = wait::eventually("the graph is created", async || test.graphs().get_opt(GRAPH).await.ok()?);
    created.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    test.set_graph_state("successful").await;
    until_phase(&requests, "Deployed", &operator).await;
    test.set_graph_state("failed").await;
    until_phase(&requests, "Deploying", &operator).await;
    test.set_graph_state("successful").await;
    until_phase(&requests, "Deployed", &operator).await;

    let events = test.namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
    let count = |reason: &str| events.items.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
    for reason in ["Initialized", "ProfilingJobCreated", "ImagePullFailed", "SpecGenerated", "DeploymentCreated"] {
        assert_eq!(count(reason), 1, "{reason}: {events:#?}");
    }
    test.graphs().delete(GRAPH, &Default::default()).await.unwrap();
    until_phase(&requests, "Failed", &operator).await;
    operator.assert_log_is_json();
}

/// An operator for one request, on a cluster with Kubernetes' own controllers. The pod of the profiling Job runs until
/// [`Self::complete_pod`].
pub struct LiveOperator {
    // Fields are dropped in order: the operator must stop before the next test gets the cluster.
    pub operator: OperatorProcess,
    pub test: TestNamespace,
    _exclusive: ExclusiveCluster,
}

impl LiveOperator {
    /// Starts with or without the CRD of graphs. Returns None, after reporting a skip, if there is no cluster.
    pub async fn start(prefix: &str, with_graph_crd: bool) -> Option<Self> {
        let exclusive = exclusive_cluster(Flavour::Full).await?;
        let cluster = exclusive.cluster;
        let installation = TestInstallation::create(cluster).await;
        let admin = cluster.admin().await.unwrap();
        install_crd(&admin, &single_version_crd(Family::Dgdr, VERSION), &api_resource(Family::Dgdr, VERSION)).await;
        if with_graph_crd {
            install_crd(&admin, &graph_crd(), &api_resource(Family::Dgd, VERSION)).await;
        }
        let namespace = cluster
            .namespace_with_annotations(prefix, &[(BEHAVIOUR_ANNOTATION, PodBehaviour::Hang.annotation_value())])
            .await
            .unwrap();
        create(&admin, namespace.name(), spec(json!({}))).await.unwrap();
        let test = TestNamespace { cluster, admin, namespace };
        let operator = installation.start(prefix, &["--controllers", "dgdr", "--operator-image", "steersman:1"]).await;
        let running = Self { operator, test, _exclusive: exclusive };
        running.until("the profiler runs", |status| condition(status, "Profiling").0 == "ProfilingRunning").await;
        Some(running)
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let reached = wait::eventually(what, async || holds(&self.test.status().await).then_some(()));
        reached.await.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// Lets the profiler's pod succeed, and with it the Job.
    pub async fn complete_pod(&self) {
        let pods = self.test.namespace.api::<Pod>();
        let pod = pods.list(&ListParams::default()).await.unwrap().items.remove(0).name_any();
        pods.patch(&pod, &PatchParams::default(), &Patch::Merge(PodBehaviour::Run.merge_patch())).await.unwrap();
    }

    pub async fn deliver_result(&self) {
        let result = json!({ "phase": "Done", "profiler_status": "success", "final_config.yaml": SAMPLE_RESULT });
        self.test.deliver_output(result).await;
    }

    pub async fn until_graph(&self) {
        let created =
            wait::eventually("the graph is created", async || self.test.graphs().get_opt(GRAPH).await.ok()?);
        created.await.unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()));
    }

    /// Stops the operator and removes the CRDs, so that the next test starts without them.
    pub async fn stop(self) {
        drop(self.operator);
        for family in [Family::Dgdr, Family::Dgd] {
            uninstall_crd(&self.test.admin, family).await;
        }
    }
}

#[tokio::test]
async fn request_deletion_keeps_graph_and_its_config() {
    let Some(running) = LiveOperator::start("dgdr-job", true).await else { return };
    let (test, operator) = (&running.test, &running.operator);
    running.complete_pod().await;
    running
        .until("the Job has ended", |status| condition(status, "Succeeded").1.contains("the log of container"))
        .await;
    running.deliver_result().await;
    let requests = test.requests();
    until_phase(&requests, "Deploying", operator).await;
    running.until_graph().await;
    test.set_graph_state("successful").await;
    until_phase(&requests, "Deployed", operator).await;

    requests.delete(NAME, &Default::default()).await.unwrap();
    wait::until_gone(test.namespace.api::<Job>(), "profile-qwen").await.unwrap();
    wait::until_gone(test.namespace.api::<ConfigMap>(), &names::output(NAME)).await.unwrap();
    assert!(test.graphs().get_opt(GRAPH).await.unwrap().is_some(), "the graph must outlive its request");
    assert!(test.namespace.api::<ConfigMap>().get_opt("planner-config-1a2b").await.unwrap().is_some());
    operator.assert_log_is_json();
    running.stop().await;
}

/// 160 bytes that expand to more than 50,000 nodes.
const ALIAS_BOMB: &str = "a: &a [x,x,x,x,x,x,x,x,x]
b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]
c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]
d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]
e: [*d,*d,*d,*d,*d,*d,*d,*d]
";

#[tokio::test]
async fn alias_bombs_delay_no_other_tenant() {
    let Some(exclusive) = exclusive_cluster(Flavour::Bare).await else { return };
    let cluster = exclusive.cluster;
    let installation = TestInstallation::create(cluster).await;
    let admin = cluster.admin().await.unwrap();
    let families = [(Family::Dgdr, VERSION), (Family::Va, "v1alpha1")];
    for (family, version) in families {
        install_crd(&admin, &single_version_crd(family, version), &api_resource(family, version)).await;
    }
    install_crd(&admin, &graph_crd(), &api_resource(Family::Dgd, VERSION)).await;

    // The attacker plants bombs wherever the operator reads YAML of its namespace.
    let attacker = cluster.namespace("attacker").await.unwrap();
    let documents = vec![ALIAS_BOMB; 1_490].join("---\n");
    let planted = requests(&admin, attacker.name());
    for place in 0..4 {
        let name = format!("bomb-{place}");
        create_named(&admin, attacker.name(), &name, spec(json!({ "autoApply": false }))).await.unwrap();
        let annotation = if place == 0 { names::GENERATED_GRAPH } else { names::ADDITIONAL };
        let text = if place == 0 { ALIAS_BOMB.replace('x', "[1,2,3]") } else { documents.clone() };
        let patch = json!({ "metadata": { "annotations": { annotation: text } } });
        planted.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        let patch = json!({ "status": { "phase": "Ready" } });
        planted.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    let settings: ConfigMap = object(json!({
        "metadata": { "name": "model-scale-to-zero-config" },
        "data": (0..1_000).map(|place| (format!("model.{place}"), ALIAS_BOMB)).collect::<BTreeMap<_, _>>(),
    }));
    attacker.api::<ConfigMap>().create(&PostParams::default(), &settings).await.unwrap();
    let variants: Api<DynamicObject> =
        Api::namespaced_with(admin.clone(), attacker.name(), &api_resource(Family::Va, "v1alpha1"));
    let variant: DynamicObject = object(json!({
        "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling", "metadata": { "name": "bomb" },
        "spec": { "modelID": "m", "scaleTargetRef": { "kind": "Deployment", "name": "d" } },
    }));
    variants.create(&PostParams::default(), &variant).await.unwrap();

    let mut operator =
        installation.start("bombs", &["--controllers", "dgdr,va", "--operator-image", "steersman:1"]).await;
    installation.until_led_by("bombs").await;
    for place in 0..4 {
        let reported = wait::eventually("the annotation is reported", async || {
            let request = planted.get(&format!("bomb-{place}")).await.ok()?;
            (condition(&request.data["status"], "SpecAccepted").0 == "AnnotationTooLarge").then_some(())
        });
        reported.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
    let tenant = cluster.namespace("tenant").await.unwrap();
    create_named(&admin, tenant.name(), "sound", spec(json!({}))).await.unwrap();
    let jobs = tenant.api::<Job>();
    let created = wait::eventually("the Job of another tenant", async || jobs.get_opt("profile-sound").await.ok()?);
    created.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let faults = wait::eventually("the settings are reported", async || {
        let status = variants.get("bomb").await.ok()?.data["status"].clone();
        status["configFaults"].as_array().filter(|faults| !faults.is_empty()).map(|_| ())
    });
    faults.await.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    assert_eq!(installation.transitions().await, 0);
    assert!(!operator.has_logged("lost the lease: standing by"), "{}", operator.log());
    operator.signal(Signal::TERM);
    assert_eq!(operator.exit_code().await, Some(0));
    for family in [Family::Dgdr, Family::Va, Family::Dgd] {
        uninstall_crd(&admin, family).await;
    }
}
