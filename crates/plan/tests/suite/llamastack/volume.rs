//! The life of the server's PersistentVolumeClaim.

use steersman_plan::llamastack::{KEEP_VOLUME, deletion_warning};

use super::*;

const SPEC: &str = "{distribution: {name: starter}, workload: {storage: {}}}";

fn reasons(snapshot: &Snapshot) -> Vec<&'static str> {
    plan(snapshot).findings.iter().map(|finding| finding.reason).collect()
}

#[test]
fn kept_claim_has_no_owner() {
    let mut snapshot = v1alpha2_snapshot(SPEC);
    assert_eq!(write_order(&plan(&snapshot))[0], "create PersistentVolumeClaim starter-pvc");
    let owned = planned_object(&plan(&snapshot), "PersistentVolumeClaim").unwrap();
    assert_eq!(owned["metadata"]["ownerReferences"][0]["name"], "starter");

    snapshot.object.annotations.insert(KEEP_VOLUME.into(), "true".into());
    assert_eq!(write_order(&plan(&snapshot))[0], "create unowned PersistentVolumeClaim starter-pvc");
    let kept = planned_object(&plan(&snapshot), "PersistentVolumeClaim").unwrap();
    assert_eq!(kept["metadata"].get("ownerReferences"), None);
    assert_eq!(reasons(&snapshot), [""; 0]);
}

#[test]
fn older_claim_is_reported_as_not_kept() {
    let mut snapshot = settle(v1alpha2_snapshot(SPEC));
    assert_eq!(reasons(&snapshot), [""; 0]);
    snapshot.object.annotations.insert(KEEP_VOLUME.into(), "true".into());
    let findings = plan(&snapshot).findings;
    assert_eq!(findings.iter().map(|finding| finding.reason).collect::<Vec<_>>(), ["VolumeNotKept"]);
    let command = "kubectl patch pvc starter-pvc -n team-a --type=json -p \
                   '[{\"op\":\"remove\",\"path\":\"/metadata/ownerReferences\"}]'";
    assert!(findings[0].remedy.ends_with(command), "{}", findings[0].remedy);
    snapshot.volume_claim.as_mut().unwrap().owned = false;
    assert_eq!(reasons(&snapshot), [""; 0]);
    snapshot.object.annotations.insert(KEEP_VOLUME.into(), "yes".into());
    assert_eq!(reasons(&snapshot), ["AnnotationIgnored"]);
}

#[test]
fn claim_is_announced_as_deleted_with_object() {
    let mut object = json!({ "metadata": { "name": "a" }, "spec": yaml(SPEC) });
    let warning = deletion_warning(&object, None).unwrap();
    assert_eq!(warning.path.to_string(), "spec.workload.storage");
    let text = warning.text().to_string();
    assert!(text.contains("PersistentVolumeClaim a-pvc and its data are deleted with this object"), "{text}");
    assert!(text.contains("steersman.dev/keep-volume"), "{text}");
    let without_claim = json!({ "metadata": { "name": "a" }, "spec": { "workload": { "replicas": 1 } } });
    assert_eq!(deletion_warning(&object, Some(&without_claim)), Some(warning), "a claim that is added later");
    assert_eq!(deletion_warning(&object, Some(&object)), None, "the author knows");
    object["metadata"]["annotations"] = json!({ "steersman.dev/keep-volume": "true" });
    assert_eq!(deletion_warning(&object, None), None);
    object["spec"]["workload"] = json!({});
    object["metadata"]["annotations"] = json!(null);
    assert_eq!(deletion_warning(&object, None), None);
}

#[test]
fn several_pods_on_one_claim_are_reported() {
    for (workload, wanted) in [
        ("{storage: {}, replicas: 2}", Some("spec.workload.replicas is 2, but all pods mount")),
        ("{storage: {}, autoscaling: {maxReplicas: 3}}", Some("spec.workload.autoscaling.maxReplicas is 3, but")),
        ("{storage: {}, replicas: 1}", None),
        ("{replicas: 2}", None),
    ] {
        let mut snapshot = v1alpha2_snapshot(&format!("{{distribution: {{name: starter}}, workload: {workload}}}"));
        let found = plan(&snapshot).findings.into_iter().find(|finding| finding.reason == "VolumeOfOneNode");
        assert_eq!(found.is_some(), wanted.is_some(), "{workload}");
        assert!(found.iter().all(|found| found.message.starts_with(wanted.unwrap())), "{found:?}");
        snapshot.volume_claim = Some(ObservedClaim { shared: true, ..ObservedClaim::default() });
        assert!(!reasons(&snapshot).contains(&"VolumeOfOneNode"), "every node can mount it: {workload}");
    }
}
