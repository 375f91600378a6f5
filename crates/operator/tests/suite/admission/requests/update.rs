//! Updates of requests in every phase and across versions of the API.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::super::versions::OTHER_NAMESPACE;
use super::*;

/// Stores a request without validation, sets its phase, and updates its spec.
async fn update(env: &AdmissionEnv, name: &str, old: Value, phase: &str, new: Value) -> Result<DynamicObject, String> {
    let objects = env.objects("v1beta1");
    objects.create(&PostParams::default(), &object(without_validation(beta(name, old)))).await.unwrap();
    if !phase.is_empty() {
        let status = Patch::Merge(json!({ "status": { "phase": phase } }));
        objects.patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }
    let mut object = objects.get(name).await.unwrap();
    object.metadata.labels = Some([("updated".to_owned(), "true".to_owned())].into());
    object.data["spec"] = spec(new);
    objects.replace(name, &PostParams::default(), &object).await.map_err(|error| error.to_string())
}

fn forbidden(phase: &str) -> String {
    format!(
        "spec: Forbidden: updates are forbidden while the resource is in phase \"{phase}\"; delete and recreate the \
         resource to change its spec. "
    )
}

/// Each row has the changes to the base spec before and after the update, and the expected refusal.
#[tokio::test]
async fn adm_14_to_33_updates_depend_on_phase() {
    let Some(env) = start("changes", &OTHER_NAMESPACE).await else { return };
    let (same, model) = (json!({}), json!({ "model": MODEL }));
    let unset = json!({ "runtimeVersionOverride": null });
    let manual = |more: Value| {
        let mut more = more;
        more["autoApply"] = json!(false);
        more
    };
    let version = json!({ "runtimeVersionOverride": "1.2.0" });
    let thorough = json!({ "backend": "auto", "searchStrategy": "thorough" });
    let image = |image: &str| json!({ "image": image, "runtimeVersionOverride": null });
    let rows = [
        ("adm-14", same.clone(), "Profiling", same.clone(), String::new()),
        ("adm-15", same.clone(), "Profiling", model.clone(), forbidden("Profiling")),
        ("adm-16", manual(same.clone()), "Ready", same.clone(), String::new()),
        ("adm-17", manual(unset.clone()), "Ready", same.clone(), String::new()),
        ("adm-18", manual(unset.clone()), "Ready", unset.clone(), NO_VERSION.to_owned()),
        ("adm-19", manual(unset.clone()), "Ready", manual(same.clone()), String::new()),
        ("adm-20", manual(same.clone()), "Ready", manual(version.clone()), String::new()),
        ("adm-21", manual(same.clone()), "Profiling", manual(version.clone()), String::new()),
        ("adm-21-b", manual(same.clone()), "Profiling", version, forbidden("Profiling")),
        ("adm-22", manual(same.clone()), "Ready", manual(model.clone()), forbidden("Ready")),
        ("adm-23", same.clone(), "Deploying", model.clone(), forbidden("Deploying")),
        ("adm-24", same.clone(), "Deployed", model.clone(), forbidden("Deployed")),
        ("adm-25", same.clone(), "Failed", model.clone(), String::new()),
        ("adm-26", thorough.clone(), "", thorough.clone(), String::new()),
        ("adm-27", unset.clone(), "Deployed", unset.clone(), String::new()),
        ("adm-28", unset.clone(), "Deployed", same.clone(), forbidden("Deployed")),
        ("adm-29", image("test-profiler:1.1.0"), "", unset.clone(), NO_VERSION.to_owned()),
        ("adm-30", unset, "", image("test-profiler:other"), NO_VERSION.to_owned()),
        ("adm-33", same.clone(), "", thorough, THOROUGH.to_owned()),
        ("pending", same, "Pending", model, String::new()),
    ];
    for (row, old, phase, new, refused) in rows {
        match (update(&env, row, old, phase, new).await, refused.as_str()) {
            (Ok(_), "") => {}
            (Err(error), "") => panic!("{row} is refused: {error}"),
            (Ok(_), refused) => panic!("{row} is accepted, but should be refused with {refused}"),
            (Err(error), refused) => assert!(error.contains(refused), "{row}: {error}"),
        }
    }
}

/// The controller runs, and records the accepted spec when profiling starts.
#[tokio::test]
async fn unvalidated_change_while_profiling_can_be_reverted() {
    let Some(env) = start("slipped", &["--operator-image", "steersman:1"]).await else { return };
    let hardware = json!({ "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
        "interconnect": "nvlink", "rdma": false });
    let manifest = beta("qwen", json!({ "hardware": hardware, "image": null, "runtimeVersionOverride": null }));
    apply(&env, &manifest).await.ok();
    let objects = env.objects("v1beta1");
    let wait_for_condition = async |what: &str, type_: &str, status: &str, reason: &str| {
        let holds = async || {
            let found = objects.get("qwen").await.ok()?.data["status"].take();
            let condition = found["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)?;
            (condition["status"] == status && condition["reason"] == reason).then_some(())
        };
        env.wait_for(what, holds).await;
    };
    wait_for_condition("profiling begins", "Succeeded", "False", "Profiling").await;
    // Applying the same manifest again, client-side or server-side, keeps the defaulted fields.
    apply(&env, &manifest).await.ok();
    env.apply(&manifest, &["--server-side", "--force-conflicts"]).await.ok();
    let patch = async |change: Value| objects.patch("qwen", &PatchParams::default(), &Patch::Merge(change)).await;
    let other = json!({ "spec": { "model": MODEL } });
    let refused = patch(other.clone()).await.unwrap_err().to_string();
    assert!(refused.contains(&forbidden("Profiling")) && refused.contains("Changed fields: spec.model."), "{refused}");

    // The change is written without validation.
    patch(json!({ "metadata": { "labels": { SKIP_VALIDATION_LABEL: "true" } } })).await.unwrap();
    patch(other).await.unwrap();
    wait_for_condition("the change is rejected", "SpecAccepted", "False", "SpecChangeRejected").await;
    patch(json!({ "metadata": { "labels": { SKIP_VALIDATION_LABEL: null } } })).await.unwrap();
    let refused = patch(json!({ "spec": { "model": "another" } })).await.unwrap_err().to_string();
    assert!(refused.contains("Only a change back to that spec is accepted."), "{refused}");
    patch(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await.unwrap();
    wait_for_condition("the request goes on", "SpecAccepted", "True", "SpecAccepted").await;
    env.operator.assert_log_is_json();
}
