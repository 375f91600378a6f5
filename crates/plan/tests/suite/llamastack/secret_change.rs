//! Secrets that change while the server runs.

use steersman_plan::llamastack::{ObservedReference, ObservedSecret, RESTART_ON_SECRET_CHANGE, pod_secrets};

use super::status::render_status;

use super::*;

const POD_START: &str = "2026-11-15T12:00:00Z";

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
    snapshot.secrets = vec![ObservedSecret { name: "cert".into(), version: Some(version.into()), changed }];
    snapshot.oldest_start = Some(POD_START.parse().unwrap());
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
    assert!(findings[0].message.contains("started before the last change of Secret cert"), "{findings:?}");
    assert!(findings[0].remedy.contains("kubectl rollout restart deployment starter -n team-a"), "{findings:?}");
    assert_eq!(secret_versions(&rotated), None, "without the annotation, nothing restarts");

    assert_eq!(reasons(&snapshot_with_secret("8", "2026-11-15T11:00:00Z")), [""; 0]);
    let restarted = Snapshot { oldest_start: Some("2026-11-15T13:00:01Z".parse().unwrap()), ..rotated.clone() };
    assert_eq!(reasons(&restarted), [""; 0]);
    assert_eq!(reasons(&Snapshot { oldest_start: None, ..rotated }), [""; 0], "no pod runs");
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

#[test]
fn variables_and_volumes_refer_to_secrets() {
    let text = "{distribution: {name: starter}, workload: {overrides: {\
        env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: k}}}, {name: B, value: b}, \
        {name: C, valueFrom: {secretKeyRef: {name: a, key: k, optional: true}}}, \
        {name: D, valueFrom: {secretKeyRef: {name: d, key: k, optional: true}}}, \
        {name: E, valueFrom: {secretKeyRef: {name: '', key: k}}}, {name: F, valueFrom: {configMapKeyRef: {name: f, key: k}}}], \
        volumes: [{name: v, secret: {secretName: v}}, {name: p, projected: {sources: [{secret: {name: p}}, {configMap: {name: m}}]}}]}}}";
    let secrets = pod_secrets(&v1alpha2_snapshot(text).object.spec);
    let secrets: Vec<(&str, bool)> = secrets.iter().map(|(name, required)| (name.as_str(), *required)).collect();
    assert_eq!(secrets, [("a", true), ("d", false), ("p", true), ("v", true)]);
    let variable = |place: usize| {
        json!({ "name": format!("V{place}"),
        "valueFrom": { "secretKeyRef": { "name": format!("s{place}"), "key": "k" } } })
    };
    let many: Vec<Value> = (0..1_000).map(variable).collect();
    let spec = json!({ "distribution": { "name": "starter" }, "workload": { "overrides": { "env": many } } });
    assert_eq!(pod_secrets(&snapshot_from_v1alpha2(spec).object.spec).len(), 500, "reads are bounded");
}

/// Pods of the new template could not start.
#[test]
fn missing_secret_restarts_nothing() {
    let mut snapshot = snapshot_with_secret("8", "2026-11-15T13:00:00Z");
    snapshot.object.annotations.insert(RESTART_ON_SECRET_CHANGE.into(), "true".into());
    let live = secret_versions(&snapshot).unwrap();
    let template = json!({ "metadata": { "annotations": { "steersman.dev/secret-versions": live } } });
    snapshot.deployment = Some(ObservedDeployment { template, ..observed_deployment(1, 1) });
    snapshot.secrets.push(ObservedSecret { name: "own".into(), version: None, changed: None });
    snapshot.secrets[0].version = Some("9".into());
    assert_eq!(secret_versions(&snapshot).as_deref(), Some(live.as_str()));
    snapshot.secrets[1].version = Some("1".into());
    assert_ne!(secret_versions(&snapshot).as_deref(), Some(live.as_str()));
}

/// After a start of the operator, the pods are not known for a moment.
#[test]
fn secret_finding_stays_until_pods_are_known() {
    let known = settle(snapshot_with_secret("8", "2026-11-15T13:00:00Z"));
    assert_eq!(reasons(&known), ["SecretChanged"]);
    let started = Snapshot { pods: None, oldest_start: None, ..known.clone() };
    assert_eq!(plan(&started).events, []);
    assert_eq!(Some(render_status(&started, &Outcome::default())), known.object.status);

    let mut changed = started.clone();
    changed.object.annotations.insert(RESTART_ON_SECRET_CHANGE.into(), "yes".into());
    let status = render_status(&changed, &Outcome::default());
    let codes: Vec<String> = status.findings.unwrap().into_iter().map(|code| code.reason).collect();
    assert_eq!(codes, ["AnnotationIgnored"], "other findings are reported at once");
    let mut newer = started;
    newer.object.generation = Some(2);
    assert_eq!(
        render_status(&newer, &Outcome::default()).findings,
        Some(vec![]),
        "the stored ones are of another spec"
    );
    let restarted = Snapshot { oldest_start: None, ..known };
    assert_eq!(render_status(&restarted, &Outcome::default()).findings, Some(vec![]));
}
