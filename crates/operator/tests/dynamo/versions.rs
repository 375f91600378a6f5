//! A request of v1alpha1, with what only that version has fields for.

use serde_json::{Value, json};
use steersman_testkit::wait;

use crate::scene::{REQUEST, Scene, condition};

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
async fn a_request_of_v1alpha1_keeps_its_config_map_and_its_claim_in_both_versions_and_in_its_job() {
    let Some(scene) = Scene::open("alpha").await else { return };
    scene.apply(alpha()).await;
    let missing = ["output PVC results not found", "ConfigMap base-config with key base.yaml not found"];
    scene.until_said(missing[0]).await;
    let says =
        [missing[0], missing[1], "spec.profilingConfig.outputPVC in v1alpha1", "spec.profilingConfig.configMapRef"];
    scene.shown("alpha-missing").assert("Pending", "Pending", &says, &["ValidationFailed"]);
    scene.config_map("base-config", "base.yaml", "{}").await;
    scene.claim("results").await;
    let beta = scene.until_phase("Profiling").await;

    let annotations = &beta["metadata"]["annotations"];
    assert_eq!(annotations["nvidia.com/dgdr-output-pvc"], "results");
    let kept: Value = serde_json::from_str(annotations["nvidia.com/dgdr-config-map-ref"].as_str().unwrap()).unwrap();
    assert_eq!(kept, json!({ "name": "base-config", "key": "base.yaml" }));
    assert_eq!((&beta["spec"]["sla"]["ttft"], &beta["spec"]["workload"]["isl"]), (&json!(300), &json!(4000)));
    let read = scene.object("v1alpha1").await;
    assert_eq!(read["spec"], alpha_completed(&read), "as it was written");
    assert_eq!(read["status"]["state"], "Profiling");
    let old = scene
        .world
        .cluster
        .kubectl(&["get", "dynamographdeploymentrequests.v1alpha1.nvidia.com", REQUEST, "-n", scene.name()])
        .unwrap();
    assert!(old.contains("STATE") && old.contains("Profiling"), "{old}");

    let pod = json!(scene.job().await.spec.unwrap().template.spec.unwrap());
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

    // On a volume that lasts, by the real relay.
    let profiler = scene.profiler().await;
    profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    let shown = scene.shown("alpha-profiling");
    assert!(shown.description.contains("ConfigMapRefUnread"), "{}", shown.description);
    profiler.succeeds().await;
    scene.graph_is("successful", "").await;
    let beta = scene.until_phase("Deployed").await;
    assert_eq!(condition(&beta, "Succeeded")["status"], "True");
    let alpha = wait::eventually("v1alpha1 says the same", async || {
        let read = scene.object("v1alpha1").await;
        (read["status"]["state"] == "Ready").then_some(read)
    });
    assert_eq!(alpha.await.unwrap()["status"]["deployment"]["name"], "qwen-dgd");
}

/// What was written, with what the operator has found out since.
fn alpha_completed(read: &Value) -> Value {
    let mut spec = alpha()["spec"].clone();
    for key in ["enableGpuDiscovery", "useMocker"] {
        if !read["spec"][key].is_null() {
            spec[key] = read["spec"][key].clone();
        }
    }
    spec["profilingConfig"]["config"] = read["spec"]["profilingConfig"]["config"].clone();
    spec
}

/// As `kubectl replace` sends it: whole, and without what others have written into it.
#[tokio::test]
async fn the_same_file_of_v1alpha1_can_be_sent_again_while_profiling_and_another_one_cannot() {
    let Some(scene) = Scene::open("again").await else { return };
    let config = json!({ "sla": { "isl": 4000, "osl": 500, "ttft": 300.0, "itl": 10.0 } });
    // Without an image and without hardware: both are filled in.
    let profiling = json!({ "profilerImage": "", "config": config });
    let file = json!({ "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeploymentRequest",
        "metadata": { "name": REQUEST, "namespace": scene.name() },
        "spec": { "model": "Qwen/Qwen3-0.6B", "backend": "vllm", "autoApply": true, "profilingConfig": profiling } });
    let folder = tempfile::tempdir().unwrap();
    let kubectl = |verb: &str, file: &Value| {
        let path = folder.path().join("request.json");
        std::fs::write(&path, file.to_string()).unwrap();
        scene.world.cluster.kubectl(&[verb, "-f", &path.display().to_string()])
    };
    // Between its look and its write, the operator may have written, too.
    let replace = |file: &Value| loop {
        match kubectl("replace", file) {
            Err(overtaken) if overtaken.contains("the object has been modified") => {}
            done => return done,
        }
    };
    kubectl("create", &file).unwrap();
    let profiler = scene.profiler().await;
    let before = profiler.is_heard("SweepingPrefill", "Sweeping parallelization strategies").await;
    assert_eq!(before["spec"]["hardware"]["gpuSku"], "h100_sxm", "it was discovered");
    assert!(before["spec"]["image"].as_str().is_some_and(|image| !image.is_empty()), "it was filled in");
    replace(&file).unwrap();
    let mut other = file.clone();
    other["spec"]["model"] = "Qwen/Qwen3-32B".into();
    let refused = replace(&other).unwrap_err();
    assert!(refused.contains("Changed is spec.model."), "{refused}");

    profiler.is_heard("SelectingConfig", "Filtering results").await;
    let marked = scene.until("it is marked again", |request| {
        !request["metadata"]["annotations"]["steersman.dev/accepted-spec"].is_null()
    });
    assert_eq!(condition(&marked.await, "SpecAccepted")["status"], "True");
    replace(&file).unwrap();
    profiler.succeeds().await;
    scene.graph_is("successful", "").await;
    scene.until_phase("Deployed").await;
}
