//! Pods that an earlier operator started stay as they are until something else is asked for.

use sha2::{Digest, Sha256};
use steersman_plan::llamastack::ObservedReference;
use steersman_reconcile::ADOPTED_LABEL;

use super::*;

const SPEC: &str = "server: {distribution: {name: starter}, containerSpec: {env: [{name: A, value: b}]}}";

/// What an earlier operator would have written: the same container in other words.
fn their_template() -> Value {
    json!({ "metadata": { "labels": { "app": "llama-stack" } }, "spec": { "containers": [{ "name": "theirs" }] } })
}

fn taken_over(spec: &str, legacy: bool, adopted: Option<&str>) -> Snapshot {
    let mut seen = a_new_object(spec);
    seen.deployment = Some(ObservedDeployment {
        legacy,
        adopted: adopted.map(str::to_owned),
        template: their_template(),
        resource_version: Some("7".into()),
        ..a_deployment(1, 1)
    });
    seen
}

fn deployment(seen: &Snapshot) -> Value {
    written(&plan(seen), "Deployment").unwrap()
}

fn mark(deployment: &Value) -> Option<&str> {
    deployment["metadata"]["labels"][ADOPTED_LABEL].as_str()
}

#[test]
fn a_deployment_of_an_earlier_operator_keeps_its_pods_and_gets_a_mark() {
    let wanted = deployment(&taken_over(SPEC, true, None));
    assert_eq!(wanted["spec"]["template"], their_template());
    assert_eq!(mark(&wanted).map(str::len), Some(16));
    assert_eq!(wanted["metadata"]["resourceVersion"], "7", "nothing newer is overwritten with what was seen");
}

#[test]
fn it_keeps_them_for_as_long_as_the_same_is_asked_for() {
    let first = deployment(&taken_over(SPEC, true, None));
    let mark_then = mark(&first).unwrap();
    assert_eq!(deployment(&taken_over(SPEC, false, Some(mark_then))), first);
    for replicas in [0, 3] {
        let scaled = deployment(&taken_over(&format!("{SPEC}\nreplicas: {replicas}"), false, Some(mark_then)));
        assert_eq!((&scaled["spec"]["template"], &scaled["spec"]["replicas"]), (&their_template(), &json!(replicas)));
        assert_eq!(mark(&scaled), Some(mark_then), "{replicas}");
    }

    for ignored in ["podDisruptionBudget: {maxUnavailable: 1}", "autoscaling: {maxReplicas: 3}"] {
        let spec = SPEC.replace("server: {", &format!("server: {{{ignored}, "));
        let wanted = deployment(&taken_over(&spec, false, Some(mark_then)));
        assert_eq!(wanted["spec"]["template"], their_template(), "no pod depends on it: {spec}");
    }
    let changes = [SPEC.replace("A,", "B,"), SPEC.replace("name: starter", "image: other")];
    for changed in changes {
        let wanted = deployment(&taken_over(&changed, false, Some(mark_then)));
        assert_ne!(wanted["spec"]["template"], their_template(), "{changed}");
        assert_eq!((mark(&wanted), wanted["metadata"].get("resourceVersion")), (None, None), "{changed}");
    }
    let mut unmarked = taken_over(SPEC, false, None);
    assert_ne!(deployment(&unmarked)["spec"]["template"], their_template(), "who removes the mark wants new pods");
    unmarked.deployment = None;
    assert_eq!(mark(&deployment(&unmarked)), None);
}

#[test]
fn pods_that_are_not_as_asked_are_told_of() {
    let told = plan(&taken_over(SPEC, true, None)).findings;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0].message,
        "Deployment starter was made by an earlier operator, and its pods stay as they are although Steersman would write \
         spec.template.metadata.labels.app.kubernetes.io/instance, spec.template.spec.containers[0].env, \
         spec.template.spec.containers[0].image, spec.template.spec.containers[0].name, \
         spec.template.spec.containers[0].ports and 6 more otherwise."
    );
    assert!(told[0].remedy.ends_with("kubectl label deployment starter steersman.dev/adopted-"), "{told:?}");

    let mut same = taken_over(SPEC, true, None);
    let mut template = deployment(&a_new_object(SPEC))["spec"]["template"].clone();
    template["spec"]["dnsPolicy"] = json!("ClusterFirst");
    same.deployment.as_mut().unwrap().template = template;
    assert_eq!(plan(&same).findings, [], "what the server has added is no difference");
}

/// Marks that are on Deployments by now go on to count: what v1alpha1 says, the image, and whether there are several pods.
#[test]
fn the_mark_of_an_unchanged_object_is_the_one_it_always_had() {
    for (text, several) in [(SPEC.to_owned(), false), (format!("{SPEC}\nreplicas: 2"), true)] {
        let spec: v1alpha1::LlamaStackDistributionSpec = serde_json::from_value(yaml(&text)).unwrap();
        let asked = json!({ "server": spec.server, "image": STARTER, "several": several });
        let digest = Sha256::digest(asked.to_string());
        let expected: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(mark(&deployment(&taken_over(&text, true, None))), Some(expected.as_str()), "{text}");
    }
}

#[test]
fn pods_of_an_earlier_operator_stay_with_their_configuration_until_it_is_another() {
    let spec = "server: {distribution: {name: starter}, userConfig: {configMapName: mine}}";
    let with = |content: &str, legacy, adopted: Option<&str>| {
        let mut seen = taken_over(spec, legacy, adopted);
        seen.references = vec![ObservedReference {
            secret: false,
            namespace: "team-a".into(),
            name: "mine".into(),
            keys: Some(["config.yaml".to_owned()].into()),
            content: Some([("config.yaml".to_owned(), content.to_owned())].into()),
        }];
        seen
    };
    let first = deployment(&with("version: 2", true, None));
    assert_eq!(first["spec"]["template"], their_template(), "whatever their value of the annotation is");
    let mark_then = mark(&first).unwrap();
    assert_eq!(deployment(&with("version: 2", false, Some(mark_then))), first);
    let changed = deployment(&with("version: 3", false, Some(mark_then)));
    assert_ne!(changed["spec"]["template"], their_template());
}
