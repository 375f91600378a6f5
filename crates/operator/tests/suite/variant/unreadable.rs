//! Objects that could be read before and cannot be read now.

use kube::api::DeleteParams;

use super::*;

#[tokio::test]
async fn what_an_object_said_before_it_could_not_be_read_is_still_shown() {
    let Some(scene) = Scene::new("unreadable").await else { return };
    let label = json!({ "metadata": { "labels": { "wva.llmd.ai/controller-instance": "unreadable-test" } } });
    for name in ["v", "w"] {
        scene.deploy(name, 2).await;
        scene.create(name, spec(name)).await;
        scene.objects().patch(name, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
    let ours = [("CONTROLLER_INSTANCE", "unreadable-test")];
    let scope = Scope::Namespace(scene.namespace.name().to_owned());
    let given = given(scene.cluster, scene.admin.clone(), scope, scene.settings.name(), &ours);
    let variants = Variants::new(&given, FleetRhythm::default());
    assert_eq!(pass(&variants).await.unwrap().decided, 2);
    let desired = |name: &str| {
        let text = given.metrics.text().unwrap();
        let own = format!("variant_name=\"{name}\"");
        text.lines().any(|line| line.starts_with("wva_desired_replicas{") && line.contains(&own))
    };
    assert!(desired("v") && desired("w"));

    // The schema lets an object be without a spec.
    let nothing = Patch::Merge(json!({ "spec": null }));
    scene.objects().patch("v", &PatchParams::default(), &nothing).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 1);
    assert!(desired("v") && desired("w"), "an HPA follows what it said last");

    // With nobody left who can be decided on.
    let stays = Patch::Merge(json!({ "metadata": { "finalizers": ["example.com/stays"] } }));
    scene.objects().patch("w", &PatchParams::default(), &stays).await.unwrap();
    scene.objects().delete("w", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 0);
    assert!(desired("v") && !desired("w"));
    let gone = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    scene.objects().patch("w", &PatchParams::default(), &gone).await.unwrap();
    scene.objects().delete("v", &DeleteParams::default()).await.unwrap();
    assert_eq!(pass(&variants).await.unwrap().decided, 0);
    assert!(!desired("v"), "who is gone is not shown");
}
