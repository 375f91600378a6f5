//! Secrets that change while the server runs.

use steersman_plan::llamastack::{ObservedReference, ObservedSecret, RESTART_ON_SECRET_CHANGE};

use super::*;

const POD_AGE: &str = "2026-11-15T12:00:00Z";

/// A server with a certificate, whose Secret has this version and was changed then.
fn snapshot_with_secret(version: &str, changed: &str) -> Snapshot {
    let tls = "{distribution: {name: starter}, networking: {port: 8443, tls: {enabled: true, secretName: cert}}}";
    let mut snapshot = v1alpha2_snapshot(tls);
    snapshot.references = vec![ObservedReference {
        secret: true,
        namespace: "team-a".into(),
        name: "cert".into(),
        keys: Some(["tls.crt".to_owned(), "tls.key".to_owned()].into()),
        content: None,
    }];
    let changed = Some(changed.parse().unwrap());
    snapshot.secrets = vec![ObservedSecret { name: "cert".into(), version: version.into(), changed }];
    snapshot.oldest_pod = Some(POD_AGE.parse().unwrap());
    snapshot
}

fn reasons(snapshot: &Snapshot) -> Vec<&'static str> {
    plan(snapshot).findings.iter().map(|finding| finding.reason).collect()
}

fn secret_versions(snapshot: &Snapshot) -> Option<String> {
    let template = &planned_object(&plan(snapshot), "Deployment").unwrap()["spec"]["template"];
    template["metadata"]["annotations"]["steersman.dev/secret-versions"].as_str().map(str::to_owned)
}

#[test]
fn rotated_secret_is_reported_until_restart() {
    let rotated = snapshot_with_secret("8", "2026-11-15T13:00:00Z");
    let findings = plan(&rotated).findings;
    assert_eq!(reasons(&rotated), ["SecretChanged"]);
    assert!(findings[0].message.contains("older than the last change of Secret cert"), "{findings:?}");
    assert!(findings[0].remedy.contains("kubectl rollout restart deployment starter -n team-a"), "{findings:?}");
    assert_eq!(secret_versions(&rotated), None, "without the annotation, nothing restarts");

    assert_eq!(reasons(&snapshot_with_secret("8", "2026-11-15T11:00:00Z")), [""; 0]);
    let restarted = Snapshot { oldest_pod: Some("2026-11-15T13:00:01Z".parse().unwrap()), ..rotated.clone() };
    assert_eq!(reasons(&restarted), [""; 0]);
    assert_eq!(reasons(&Snapshot { oldest_pod: None, ..rotated }), [""; 0], "pods are not known yet");
}

#[test]
fn annotation_restarts_server_with_new_secret() {
    let restarting = |version: &str| {
        let mut snapshot = snapshot_with_secret(version, "2026-11-15T13:00:00Z");
        snapshot.object.annotations.insert(RESTART_ON_SECRET_CHANGE.into(), "true".into());
        snapshot
    };
    let (before, after) = (secret_versions(&restarting("7")), secret_versions(&restarting("8")));
    assert!(before.is_some() && after.is_some() && before != after, "{before:?} {after:?}");
    assert_eq!(reasons(&restarting("8")), [""; 0]);
    let mut plain = restarting("7");
    plain.secrets.clear();
    assert_eq!(secret_versions(&plain), None, "there is nothing to follow");
}

#[test]
fn switched_off_restarts_keep_running_pods() {
    let mut snapshot = snapshot_with_secret("8", "2026-11-15T13:00:00Z");
    let template = json!({ "metadata": { "annotations": { "steersman.dev/secret-versions": "0011" } } });
    snapshot.deployment = Some(ObservedDeployment { template, ..observed_deployment(1, 1) });
    for annotations in [vec![], vec!["yes"], vec!["false"]] {
        for value in &annotations {
            snapshot.object.annotations.insert(RESTART_ON_SECRET_CHANGE.into(), (*value).to_owned());
        }
        assert_eq!(secret_versions(&snapshot).as_deref(), Some("0011"), "{annotations:?}");
        assert!(reasons(&snapshot).contains(&"SecretChanged"), "{annotations:?}");
    }
}
