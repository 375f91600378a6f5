//! Requests of v1alpha1, with the fields that only that version has.

use serde_json::{Value, json};
use steersman_testkit::wait;

use crate::test_namespace::{REQUEST, TestNamespace, condition};

fn alpha() -> Value {
    let config = json!({ "sla": { "isl": 4000, "osl": 500, "ttft": 300.0, "itl": 10.0 },
        "hardware": { "numGpusPerNode": 8, "gpuModel": "h100_sxm", "gpuVramMib": 81_920 } });
    json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": REQUEST },
        "spec": { "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "autoApply": true, "profilingConfig": {
            "profilerImage": "nvcr.io/nvidia/ai-dynamo/dynamo-planner:1.4.0", "config": config,
            "configMapRef": { "name": "base-config", "key": "base.yaml" }, "outputPVC": "results" } } })
}

#[tokio::test]
async fn v1alpha1_references_survive_conversion_and_reach_job() {
    let Some(ns) = TestNamespace::open("alpha").await else { return };
    ns.apply(alpha()).await;
    let missing = ["output PVC results not found", "ConfigMap base-config with key base.yaml not found"];
    ns.wait_for_message(missing[0]).await;
    let messages =
        [missing[0], missing[1], "spec.profilingConfig.outputPVC in v1alpha1", "spec.profilingConfig.configMapRef"];
    ns.kubectl_output("alpha-missing").assert_status("Pending", "Pending", &messages, &["ValidationFailed"]);
    ns.apply_config_map("base-config", "base.yaml", "{}").await;
    ns.apply_claim("results").await;
    let beta = ns.wait_for_phase("Profiling").await;

    let annotations = &beta["metadata"]["annotations"];
    assert_eq!(annotations["nvidia.com/dgdr-output-pvc"], "results");
    let reference: Value =
        serde_json::from_str(annotations["nvidia.com/dgdr-config-map-ref"].as_str().unwrap()).unwrap();
    assert_eq!(reference, json!({ "name": "base-config", "key": "base.yaml" }));
    assert_eq!((&beta["spec"]["sla"]["ttft"], &beta["spec"]["workload"]["isl"]), (&json!(300), &json!(4000)));
    let read = ns.object("v1alpha1").await;
    assert_eq!(read["spec"], with_discovered_fields(&read), "the spec is as it was written");
    assert_eq!(read["status"]["state"], "Profiling");
    let old = ns
        .env
        .cluster
        .kubectl(&["get", "dynamographdeploymentrequests.v1alpha1.nvidia.com", REQUEST, "-n", ns.name()])
        .unwrap();
    assert!(old.contains("STATE") && old.contains("Profiling"), "{old}");

    let pod = json!(ns.job().await.spec.unwrap().template.spec.unwrap());
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &str| volumes.iter().find(|known| known["name"] == name).unwrap();
    assert_eq!(volume("profiling-output")["persistentVolumeClaim"]["claimName"], "results");
    let items = json!([{ "key": "base.yaml", "path": "disagg.yaml" }]);
    assert_eq!(
        volume("profiling-config")["configMap"],
        json!({ "name": "base-config", "items": items, "defaultMode": 420 })
    );
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    let config = mounts.iter().find(|mount| mount["name"] == "profiling-config").unwrap();
    assert_eq!((&config["mountPath"], &config["readOnly"]), (&json!("/config"), &json!(true)));

    // The real relay works with a persistent output volume.
    let profiler = ns.profiler().await;
    profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    let output = ns.kubectl_output("alpha-profiling");
    assert!(output.description.contains("ConfigMapRefUnread"), "{}", output.description);
    profiler.succeed().await;
    ns.set_graph_state("successful", "").await;
    let beta = ns.wait_for_phase("Deployed").await;
    assert_eq!(condition(&beta, "Succeeded")["status"], "True");
    let alpha = wait::eventually("v1alpha1 has the same state", async || {
        let read = ns.object("v1alpha1").await;
        (read["status"]["state"] == "Ready").then_some(read)
    });
    assert_eq!(alpha.await.unwrap()["status"]["deployment"]["name"], "qwen-dgd");
}

/// The spec as it was written, with the values that the operator has discovered.
fn with_discovered_fields(read: &Value) -> Value {
    let mut spec = alpha()["spec"].clone();
    for key in ["enableGpuDiscovery", "useMocker"] {
        if !read["spec"][key].is_null() {
            spec[key] = read["spec"][key].clone();
        }
    }
    spec["profilingConfig"]["config"] = read["spec"]["profilingConfig"]["config"].clone();
    spec
}

/// `kubectl replace` sends the whole object, without the fields that others have written.
#[tokio::test]
async fn v1alpha1_replace_while_profiling_accepts_only_same_file() {
    let Some(ns) = TestNamespace::open("again").await else { return };
    let config = json!({ "sla": { "isl": 4000, "osl": 500, "ttft": 300.0, "itl": 10.0 } });
    // The image and the hardware are missing, and are filled in.
    let profiling = json!({ "profilerImage": "", "config": config });
    let file = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": REQUEST, "namespace": ns.name() },
        "spec": { "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "autoApply": true, "profilingConfig": profiling } });
    let folder = tempfile::tempdir().unwrap();
    let kubectl = |verb: &str, file: &Value| {
        let path = folder.path().join("request.json");
        std::fs::write(&path, file.to_string()).unwrap();
        ns.env.cluster.kubectl(&[verb, "-f", &path.display().to_string()])
    };
    // `kubectl replace` reads and then writes; the operator may write in between.
    let replace = |file: &Value| loop {
        match kubectl("replace", file) {
            Err(conflict) if conflict.contains("the object has been modified") => {}
            done => return done,
        }
    };
    kubectl("create", &file).unwrap();
    let profiler = ns.profiler().await;
    let before = profiler.report_and_wait("SweepingPrefill", "Sweeping parallelization strategies").await;
    assert_eq!(before["spec"]["hardware"]["gpuSku"], "h100_sxm", "the hardware was discovered");
    assert!(before["spec"]["image"].as_str().is_some_and(|image| !image.is_empty()), "the image was filled in");
    replace(&file).unwrap();
    let mut other = file.clone();
    other["spec"]["model"] = "Qwen/Qwen3-32B".into();
    let rejection = replace(&other).unwrap_err();
    assert!(rejection.contains("Changed fields: spec.model."), "{rejection}");

    profiler.report_and_wait("SelectingConfig", "Filtering results").await;
    let accepted = ns.wait_for("the accepted spec is recorded again", |request| {
        !request["metadata"]["annotations"]["steersman.dev/accepted-spec"].is_null()
    });
    assert_eq!(condition(&accepted.await, "SpecAccepted")["status"], "True");
    replace(&file).unwrap();
    profiler.succeed().await;
    ns.set_graph_state("successful", "").await;
    ns.wait_for_phase("Deployed").await;
}
