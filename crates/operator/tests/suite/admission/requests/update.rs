//! Changes of requests, in every phase and across the versions of the API.

use kube::api::PostParams;
use serde_json::{Value, json};

use super::super::versions::ELSEWHERE;
use super::*;

/// Stores a request without asking, gives it a phase, and asks about a change.
async fn changed(court: &Court, name: &str, old: Value, phase: &str, new: Value) -> Result<DynamicObject, String> {
    let objects = court.objects("v1beta1");
    objects.create(&PostParams::default(), &object(unjudged(beta(name, old)))).await.unwrap();
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

/// With these changes of the least request: before and after.
#[tokio::test]
async fn adm_14_to_33_changes_are_judged_by_the_phase_and_by_what_was_there_before() {
    let Some(court) = open("changes", &ELSEWHERE).await else { return };
    let (same, model) = (json!({}), json!({ "model": MODEL }));
    let unset = json!({ "runtimeVersionOverride": null });
    let waiting = |more: Value| {
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
        ("adm-16", waiting(same.clone()), "Ready", same.clone(), String::new()),
        ("adm-17", waiting(unset.clone()), "Ready", same.clone(), String::new()),
        ("adm-18", waiting(unset.clone()), "Ready", unset.clone(), NO_VERSION.to_owned()),
        ("adm-19", waiting(unset.clone()), "Ready", waiting(same.clone()), String::new()),
        ("adm-20", waiting(same.clone()), "Ready", waiting(version.clone()), String::new()),
        ("adm-21", waiting(same.clone()), "Profiling", waiting(version.clone()), String::new()),
        ("adm-21-b", waiting(same.clone()), "Profiling", version, forbidden("Profiling")),
        ("adm-22", waiting(same.clone()), "Ready", waiting(model.clone()), forbidden("Ready")),
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
        match (changed(&court, row, old, phase, new).await, refused.as_str()) {
            (Ok(_), "") => {}
            (Err(error), "") => panic!("{row} is refused: {error}"),
            (Ok(_), refused) => panic!("{row} is accepted, but should be refused with {refused}"),
            (Err(error), refused) => assert!(error.contains(refused), "{row}: {error}"),
        }
    }
}

/// The whole story, with the controller that marks what it began with.
#[tokio::test]
async fn a_change_while_profiling_is_refused_and_one_that_slipped_in_can_be_taken_back() {
    let Some(court) = open("slipped", &["--operator-image", "steersman:1"]).await else { return };
    let hardware = json!({ "gpuSku": "h100_sxm", "vramMb": 81_920, "numGpusPerNode": 8, "totalGpus": 8,
        "interconnect": "nvlink", "rdma": false });
    let manifest = beta("qwen", json!({ "hardware": hardware, "image": null, "runtimeVersionOverride": null }));
    apply(&court, &manifest).await.ok();
    let objects = court.objects("v1beta1");
    let until = async |what: &str, type_: &str, status: &str, reason: &str| {
        let holds = async || {
            let found = objects.get("qwen").await.ok()?.data["status"].take();
            let known = found["conditions"].as_array()?.iter().find(|known| known["type"] == type_)?;
            (known["status"] == status && known["reason"] == reason).then_some(())
        };
        court.until(what, holds).await;
    };
    until("profiling begins", "Succeeded", "False", "Profiling").await;
    // The same manifest again, in either way: what was filled in stays.
    apply(&court, &manifest).await.ok();
    court.apply(&manifest, &["--server-side", "--force-conflicts"]).await.ok();
    let patch = async |change: Value| objects.patch("qwen", &PatchParams::default(), &Patch::Merge(change)).await;
    let other = json!({ "spec": { "model": MODEL } });
    let refused = patch(other.clone()).await.unwrap_err().to_string();
    assert!(refused.contains(&forbidden("Profiling")) && refused.contains("Changed is spec.model."), "{refused}");

    // While nobody is asked.
    patch(json!({ "metadata": { "labels": { UNJUDGED: "true" } } })).await.unwrap();
    patch(other).await.unwrap();
    until("the change is rejected", "SpecAccepted", "False", "SpecChangeRejected").await;
    patch(json!({ "metadata": { "labels": { UNJUDGED: null } } })).await.unwrap();
    let refused = patch(json!({ "spec": { "model": "another" } })).await.unwrap_err().to_string();
    assert!(refused.contains("only a change back to all of that one is accepted."), "{refused}");
    patch(json!({ "spec": { "model": "Qwen/Qwen3-0.6B" } })).await.unwrap();
    until("the request goes on", "SpecAccepted", "True", "SpecAccepted").await;
    court.operator.assert_log_is_json();
}
