//! Pods of an earlier operator are kept until the spec changes.

use sha2::{Digest, Sha256};
use steersman_plan::llamastack::ObservedReference;
use steersman_reconcile::ADOPTED_LABEL;

use super::*;

const SPEC: &str = "server: {distribution: {name: starter}, containerSpec: {env: [{name: A, value: b}]}}";

/// A pod template of an earlier operator, which differs from ours.
fn legacy_template() -> Value {
    json!({ "metadata": { "labels": { "app": "llama-stack" } }, "spec": { "containers": [{ "name": "theirs" }] } })
}

fn adopted_snapshot(spec: &str, legacy: bool, adopted: Option<&str>) -> Snapshot {
    let mut snapshot = v1alpha1_snapshot(spec);
    snapshot.deployment = Some(ObservedDeployment {
        legacy,
        adopted: adopted.map(str::to_owned),
        template: legacy_template(),
        resource_version: Some("7".into()),
        ..observed_deployment(1, 1)
    });
    snapshot
}

fn planned_deployment(snapshot: &Snapshot) -> Value {
    planned_object(&plan(snapshot), "Deployment").unwrap()
}

fn adoption_label(deployment: &Value) -> Option<&str> {
    deployment["metadata"]["labels"][ADOPTED_LABEL].as_str()
}

#[test]
fn legacy_deployment_keeps_pods_and_gets_mark() {
    let planned = planned_deployment(&adopted_snapshot(SPEC, true, None));
    assert_eq!(planned["spec"]["template"], legacy_template());
    assert_eq!(adoption_label(&planned).map(str::len), Some(16));
    assert_eq!(planned["metadata"]["resourceVersion"], "7", "the write fails if the template changed meanwhile");
}

#[test]
fn adopted_pods_stay_until_spec_changes() {
    let first = planned_deployment(&adopted_snapshot(SPEC, true, None));
    let stored_label = adoption_label(&first).unwrap();
    assert_eq!(planned_deployment(&adopted_snapshot(SPEC, false, Some(stored_label))), first);
    for replicas in [0, 3] {
        let scaled =
            planned_deployment(&adopted_snapshot(&format!("{SPEC}\nreplicas: {replicas}"), false, Some(stored_label)));
        assert_eq!((&scaled["spec"]["template"], &scaled["spec"]["replicas"]), (&legacy_template(), &json!(replicas)));
        assert_eq!(adoption_label(&scaled), Some(stored_label), "{replicas}");
    }

    for ignored in ["podDisruptionBudget: {maxUnavailable: 1}", "autoscaling: {maxReplicas: 3}"] {
        let spec = SPEC.replace("server: {", &format!("server: {{{ignored}, "));
        let planned = planned_deployment(&adopted_snapshot(&spec, false, Some(stored_label)));
        assert_eq!(planned["spec"]["template"], legacy_template(), "the field does not affect pods: {spec}");
    }
    let changes = [SPEC.replace("A,", "B,"), SPEC.replace("name: starter", "image: other")];
    for changed in changes {
        let planned = planned_deployment(&adopted_snapshot(&changed, false, Some(stored_label)));
        assert_ne!(planned["spec"]["template"], legacy_template(), "{changed}");
        assert_eq!((adoption_label(&planned), planned["metadata"].get("resourceVersion")), (None, None), "{changed}");
    }
    let mut unlabelled = adopted_snapshot(SPEC, false, None);
    assert_ne!(
        planned_deployment(&unlabelled)["spec"]["template"],
        legacy_template(),
        "removing the label requests new pods"
    );
    unlabelled.deployment = None;
    assert_eq!(adoption_label(&planned_deployment(&unlabelled)), None);
}

#[test]
fn differing_adopted_pods_are_reported() {
    let findings = plan(&adopted_snapshot(SPEC, true, None)).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        findings[0].message,
        "Deployment starter was created by an earlier operator. Its pods are not restarted, although Steersman would \
         set \
         spec.template.metadata.labels.app.kubernetes.io/instance, spec.template.spec.containers[0].env, \
         spec.template.spec.containers[0].image, spec.template.spec.containers[0].name, \
         spec.template.spec.containers[0].ports and 6 more differently."
    );
    assert!(findings[0].remedy.ends_with("kubectl label deployment starter steersman.dev/adopted-"), "{findings:?}");

    let mut same = adopted_snapshot(SPEC, true, None);
    let mut template = planned_deployment(&v1alpha1_snapshot(SPEC))["spec"]["template"].clone();
    template["spec"]["dnsPolicy"] = json!("ClusterFirst");
    same.deployment.as_mut().unwrap().template = template;
    assert_eq!(plan(&same).findings, [], "defaults of the API server are no difference");
}

/// Marks on existing Deployments stay valid. The hash covers the v1alpha1 fields, the image, and whether there are
/// several pods.
#[test]
fn adoption_label_is_stable_across_versions() {
    for (text, several) in [(SPEC.to_owned(), false), (format!("{SPEC}\nreplicas: 2"), true)] {
        let spec: v1alpha1::LlamaStackDistributionSpec = serde_json::from_value(yaml(&text)).unwrap();
        let hashed_fields = json!({ "server": spec.server, "image": STARTER, "several": several });
        let digest = Sha256::digest(hashed_fields.to_string());
        let expected: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            adoption_label(&planned_deployment(&adopted_snapshot(&text, true, None))),
            Some(expected.as_str()),
            "{text}"
        );
    }
}

#[test]
fn adopted_pods_stay_until_configuration_changes() {
    let spec = "server: {distribution: {name: starter}, userConfig: {configMapName: mine}}";
    let snapshot_with_content = |content: &str, legacy, adopted: Option<&str>| {
        let mut snapshot = adopted_snapshot(spec, legacy, adopted);
        snapshot.references = vec![ObservedReference {
            secret: false,
            namespace: "team-a".into(),
            name: "mine".into(),
            keys: Some(["config.yaml".to_owned()].into()),
            content: Some([("config.yaml".to_owned(), content.to_owned())].into()),
        }];
        snapshot
    };
    let first = planned_deployment(&snapshot_with_content("version: 2", true, None));
    assert_eq!(first["spec"]["template"], legacy_template(), "the earlier operator's hash annotation is ignored");
    let stored_label = adoption_label(&first).unwrap();
    assert_eq!(planned_deployment(&snapshot_with_content("version: 2", false, Some(stored_label))), first);
    let changed = planned_deployment(&snapshot_with_content("version: 3", false, Some(stored_label)));
    assert_ne!(changed["spec"]["template"], legacy_template());
}
