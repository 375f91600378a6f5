//! Pods of an earlier operator are kept until the spec changes.

use sha2::{Digest, Sha256};
use steersman_api::Family;
use steersman_api::crds::{Options, crd};
use steersman_plan::llamastack::{Images, ObservedReference};
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
         spec.template.spec.containers[0].image, spec.template.spec.containers[0].lifecycle, \
         spec.template.spec.containers[0].name and 7 more differently."
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

/// Adds the defaults of the stored version, as the API server does when the leader stores an object of v1alpha1 again.
fn add_stored_defaults(value: &mut Value, schema: &Value) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if let (Some(fields), Some(default)) = (value.as_object_mut(), property.get("default")) {
            fields.entry(name).or_insert_with(|| default.clone());
        }
        if let Some(inner) = value.get_mut(name) {
            add_stored_defaults(inner, property);
        }
    }
}

fn stored_spec_schema() -> Value {
    let crd = crd(Family::Llsd, &Options::default()).unwrap();
    let stored = crd.spec.versions.into_iter().find(|version| version.storage).unwrap();
    json!(stored.schema.unwrap().open_api_v3_schema)["properties"]["spec"].clone()
}

/// The specs that the Go operator runs, in every form in which defaults differ between the versions.
const GO_OPERATOR_SPECS: [&str; 8] = [
    "{replicas: 1, server: {distribution: {name: starter}}}",
    "{replicas: 1, server: {distribution: {name: starter}, storage: {}}}",
    "{replicas: 1, server: {distribution: {name: starter}, storage: {size: 20Gi}}}",
    "{replicas: 1, server: {distribution: {name: starter}}, network: {exposeRoute: false}}",
    "{replicas: 1, server: {distribution: {name: starter}}, network: {exposeRoute: false, allowedFrom: {namespaces: [a]}}}",
    "{replicas: 1, server: {distribution: {name: starter}, containerSpec: {name: llama-stack, env: [{name: A, value: b}]}}, \
     network: {exposeRoute: true}}",
    "{replicas: 1, server: {distribution: {name: starter}, tlsConfig: {}, podOverrides: {}}, network: {exposeRoute: false}}",
    "{replicas: 3, server: {distribution: {image: 'registry.example/own:1'}, storage: {size: 5Gi, mountPath: /.llama}, \
     containerSpec: {name: llama-stack, port: 8321}}}",
];

#[test]
fn stored_defaults_do_not_restart_adopted_pods() {
    let schema = stored_spec_schema();
    for spec in GO_OPERATOR_SPECS {
        let read = adopted_snapshot(spec, true, None);
        let first = planned_deployment(&read);
        assert_eq!(first["spec"]["template"], legacy_template(), "{spec}");
        let label = adoption_label(&first).unwrap();

        let mut stored = json!(read.object.spec);
        add_stored_defaults(&mut stored, &schema);
        let mut snapshot = snapshot_from_v1alpha2(stored.clone());
        snapshot.deployment = adopted_snapshot(spec, false, Some(label)).deployment;
        let planned = planned_deployment(&snapshot);
        assert_eq!(planned["spec"]["template"], legacy_template(), "{spec} stored as {stored}");
        assert_eq!(adoption_label(&planned), Some(label), "{spec}");
    }
    let with_claim = adoption_label_of("{server: {distribution: {name: starter}, storage: {}}}");
    assert_ne!(with_claim, adoption_label_of("{server: {distribution: {name: starter}}}"), "a claim changes the pods");
    let elsewhere = adoption_label_of("{server: {distribution: {name: starter}, storage: {mountPath: /data}}}");
    assert_ne!(with_claim, elsewhere, "another path changes the pods");
}

fn adoption_label_of(spec: &str) -> String {
    adoption_label(&planned_deployment(&adopted_snapshot(spec, true, None))).unwrap().to_owned()
}

/// Version 0.1 hashed defaults as well. Its label stays valid and is replaced.
#[test]
fn label_with_defaults_stays_valid() {
    let text = "{server: {distribution: {name: starter}, containerSpec: {name: llama-stack, port: 8321}, storage: {}}}";
    let spec: v1alpha1::LlamaStackDistributionSpec = serde_json::from_value(yaml(text)).unwrap();
    let hashed_fields = json!({ "server": spec.server, "image": STARTER, "several": false });
    let sorted: std::collections::BTreeMap<String, Value> = serde_json::from_value(hashed_fields).unwrap();
    let digest = Sha256::digest(json!(sorted).to_string());
    let old: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let planned = planned_deployment(&adopted_snapshot(text, false, Some(&old)));
    assert_eq!(planned["spec"]["template"], legacy_template());
    assert_eq!(adoption_label(&planned), Some(adoption_label_of(text).as_str()));
    assert_ne!(adoption_label(&planned), Some(old.as_str()));
}

#[test]
fn unknown_images_keep_adopted_pods() {
    let label = adoption_label_of(SPEC);
    let mut snapshot = adopted_snapshot(SPEC, false, Some(&label));
    snapshot.settings.operator_config.images = Images::Unknown;
    snapshot.settings.distributions.insert("starter".into(), "another:1".into());
    assert_eq!(planned_deployment(&snapshot)["spec"]["template"], legacy_template());
    snapshot.settings.operator_config.images = Images::default();
    assert_ne!(planned_deployment(&snapshot)["spec"]["template"], legacy_template(), "another image was set");
}

#[test]
fn adopted_server_reports_its_own_image() {
    let mut snapshot = adopted_snapshot(SPEC, true, None);
    let image = "docker.io/llamastack/distribution-starter:0.2.12";
    snapshot.deployment.as_mut().unwrap().template["spec"]["containers"][0]["image"] = json!(image);
    let status = llamastack::status(&snapshot, &plan(&snapshot), &Outcome::default());
    let resolved = status.resolved_distribution.unwrap();
    assert_eq!((resolved.image.as_deref(), resolved.config_hash), (Some(image), None));
}
