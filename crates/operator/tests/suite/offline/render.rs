//! `steersman render`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Input, Merge, base, generate};
use steersman_testkit::{Flavour, shared_cluster};

use super::{CommandRun, NEW_STACK, OLD_STACK, OTHER_KIND, Workspace, fixture_files, run_on};

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn config_map_is_named_after_its_hash() {
    let run = run_on(NEW_STACK, &["render"]);
    let documents = run.assert_success().documents();
    let map = of_kind(&documents, "ConfigMap").unwrap();
    let object: Value = serde_saphyr::from_str(NEW_STACK).unwrap();
    let spec: LlamaStackDistributionSpec = serde_json::from_value(object["spec"].clone()).unwrap();
    let input = Input { spec: &spec, base: base::base("starter"), merge: Merge::Overlay, operator_image: "" };
    let generated = generate(&input).unwrap();
    assert_eq!(map["data"], json!({"config.yaml": generated.config_yaml}));
    assert_eq!(map["metadata"]["name"], format!("new-config-{}", &generated.hash[..8]));
    assert_eq!(map["metadata"]["namespace"], "team-a");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/component"], "generated-config");
    assert_eq!(map["immutable"], true);
    assert!(run.out.contains(&format!("sha256 {}", generated.hash)), "{}", run.out);
}

#[test]
fn comments_name_source_and_needed_variables() {
    let run = run_on(NEW_STACK, &["render"]);
    for line in [
        "# LlamaStackDistribution team-a/new (cr.yaml: document 1)\n",
        "# configuration: generated from the base of starter (llama-stack 0.7.1), ",
        "#   LLSD_PRIMARY_API_KEY: key token of Secret vllm\n",
    ] {
        assert!(run.assert_success().out.contains(line), "{line:?} is not in:\n{}", run.out);
    }
    let postgres = NEW_STACK.replace(
        "  resources:",
        "  storage: {sql: {type: postgres, connectionString: {name: pg, key: dsn}}}\n  resources:",
    );
    let run = run_on(&postgres, &["render"]);
    for line in [
        "# init containers: prepare-storage\n",
        "# note: the image \"steersman\" is a placeholder for the operator's own image\n",
    ] {
        assert!(run.assert_success().out.contains(line), "{line:?} is not in:\n{}", run.out);
    }
}

#[test]
fn object_without_configuration_renders_all_children() {
    let run = run_on(OLD_STACK, &["render"]);
    let documents = run.assert_success().documents();
    assert_eq!(kinds(&documents), ["ServiceAccount", "Deployment", "Service", "PodDisruptionBudget"]);
    let deployment = of_kind(&documents, "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["name"], "mine");
    assert_eq!(deployment["metadata"]["name"], "old");
    assert!(run.out.contains("# configuration: the file inside the image; nothing is mounted\n"), "{}", run.out);
    assert_eq!(run.err, "");
}

#[test]
fn both_versions_render_the_same() {
    let old = run_on(OLD_STACK, &["render", "-o", "json"]);
    let converted = run_on(OLD_STACK, &["convert"]);
    let new = run_on(&converted.assert_success().out, &["render", "-o", "json"]);
    assert_eq!(old.assert_success().out, new.assert_success().out);
}

#[test]
fn render_applies_schema_defaults() {
    // The API server defaults a port for any `networking` section, and a port adds a Service.
    let with = NEW_STACK.replace("  resources:", "  networking: {allowedFrom: {namespaces: [b]}}\n  resources:");
    assert!(of_kind(&run_on(&with, &["render"]).assert_success().documents(), "Service").is_some());
}

#[test]
fn render_json_is_one_list() {
    let run = run_on(&format!("{OLD_STACK}---\n{OTHER_KIND}---\n{NEW_STACK}"), &["render", "-o", "json"]);
    let list = run.assert_success().json();
    assert_eq!(list["kind"], "List");
    let items = list["items"].as_array().unwrap();
    assert_eq!(
        kinds(items),
        [
            "ServiceAccount",
            "Deployment",
            "Service",
            "PodDisruptionBudget",
            "ServiceAccount",
            "ConfigMap",
            "Deployment",
            "Service",
        ]
    );
}

#[test]
fn owner_reference_needs_a_uid() {
    let documents = run_on(NEW_STACK, &["render"]).assert_success().documents();
    assert!(documents.iter().all(|object| object["metadata"]["ownerReferences"].is_null()));
    let stored = NEW_STACK.replace("  name: new", "  name: new\n  uid: 0c7e");
    for object in run_on(&stored, &["render"]).assert_success().documents() {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["apiVersion"]), (&json!("0c7e"), &json!("llamastack.io/v1alpha2")));
    }
}

#[test]
fn custom_image_needs_a_base_file() {
    let custom = NEW_STACK.replace("name: starter", "image: registry.example/mine:1");
    let workspace = Workspace::with_files(&[
        ("cr.yaml", &custom),
        ("base.yaml", "version: 2\napis: [inference]\nproviders: {inference: []}\n"),
        ("none.yaml", "a: 1\n"),
    ]);
    workspace.run(&["render", "-f", "cr.yaml"])
        .assert_refused(1, "spec.distribution.image: the configuration inside the image is unknown without its registry. Pass it with --base FILE.");
    let run = workspace.run(&["render", "-f", "cr.yaml", "--base", "base.yaml"]);
    let config = of_kind(&run.assert_success().documents(), "ConfigMap").unwrap()["data"]["config.yaml"].clone();
    let config: Value = serde_saphyr::from_str(config.as_str().unwrap()).unwrap();
    assert_eq!(config["providers"]["inference"].as_array().unwrap().len(), 1);
    workspace.run(&["render", "-f", "cr.yaml", "--base", "gone.yaml"]).assert_refused(2, "gone.yaml: ");
    workspace
        .run(&["render", "-f", "cr.yaml", "--base", "none.yaml"])
        .assert_refused(1, "none.yaml: the file has no mapping `providers`");
}

#[test]
fn user_config_map_is_mounted_and_hashed() {
    let custom =
        OLD_STACK.replace("    containerSpec:", "    userConfig: {configMapName: hand-made}\n    containerSpec:");
    let map = |text: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: hand-made}}\ndata: {{config.yaml: {text}}}\n")
    };
    let hash = |run: &CommandRun| {
        let deployment = of_kind(&run.assert_success().documents(), "Deployment").unwrap().clone();
        let template = &deployment["spec"]["template"];
        let mounted = template["spec"]["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|volume| volume["configMap"]["name"] == "hand-made");
        assert!(mounted, "{template}");
        template["metadata"]["annotations"]["configmap.hash/user-config"].as_str().unwrap().to_owned()
    };
    let alone = run_on(&custom, &["render"]);
    assert!(alone.assert_success().out.contains("# configuration: ConfigMap hand-made, unchanged\n"), "{}", alone.out);
    let note = "cr.yaml: document 1: note: ConfigMap hand-made is not among the files";
    assert!(alone.err.contains(note), "{}", alone.err);
    let (one, other) =
        (run_on(&format!("{custom}{}", map("a")), &["render"]), run_on(&format!("{custom}{}", map("b")), &["render"]));
    assert!(!one.err.contains("note: "), "{}", one.err);
    assert_ne!(hash(&one), hash(&other));
    assert_ne!(hash(&alone), hash(&one));
    let keyless = custom.clone() + &map("a").replace("config.yaml", "other.yaml");
    run_on(&keyless, &["render"])
        .assert_refused(1, "failed to read config from ConfigMap \"hand-made\": missing 'config.yaml' key");
}

#[test]
fn render_refuses_what_validate_refuses() {
    let wrong = NEW_STACK.replace("models: [llama]", "models: [{name: m, provider: nobody}]");
    let text = format!("{OLD_STACK}---\n{wrong}");
    let validated = run_on(&text, &["validate"]);
    let run = run_on(&text, &["render"]);
    run.assert_refused(1, "cr.yaml: document 2: spec.resources.models[0].provider: ");
    let errors =
        |stderr: &str| stderr.lines().filter(|line| line.contains("spec.")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(errors(&run.err), errors(&validated.err));
    run_on(&NEW_STACK.replace("name: new", "generateName: new-"), &["render"])
        .assert_refused(1, "metadata.name: Required value");
    let taken = OLD_STACK
        .replace("    containerSpec:", "    podOverrides: {volumes: [{name: a}, {name: a}]}\n    containerSpec:");
    run_on(&taken, &["render"]).assert_refused(1, "spec.server.podOverrides.volumes: it has two volumes \"a\".");
}

#[test]
fn provider_merge_follows_the_annotation() {
    let whole = run_on(NEW_STACK, &["render"]).assert_success().out.matches("provider_type: remote::").count();
    let annotated =
        NEW_STACK.replace("  name: new", "  name: new\n  annotations: {steersman.dev/provider-merge: replace}");
    let replaced = run_on(&annotated, &["render"]).assert_success().out.matches("provider_type: remote::").count();
    assert!(replaced < whole, "{replaced} {whole}");
}

#[tokio::test]
async fn api_server_accepts_rendered_objects() {
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("render").await.unwrap();
    let stored = OLD_STACK.replace("    containerSpec:", "    storage: {size: 5Gi}\n    containerSpec:");
    let generated = NEW_STACK.replace("  namespace: team-a\n", "");
    let run = run_on(&format!("{stored}---\n{generated}"), &["render"]);
    namespace.apply(&run.assert_success().out).await.unwrap();
    let deployment = namespace.api::<Deployment>().get("old").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    namespace.api::<PersistentVolumeClaim>().get("old-pvc").await.unwrap();
    let rendered = run.documents();
    let rendered = of_kind(&rendered, "ConfigMap").unwrap();
    let live = namespace.api::<ConfigMap>().get(rendered["metadata"]["name"].as_str().unwrap()).await.unwrap();
    assert_eq!(json!(live.data), rendered["data"]);
}

/// A refusal names a field of the object; no manifest crashes the command.
#[test]
fn every_valid_manifest_renders_or_is_refused() {
    let workspace = Workspace::with_files(&[]);
    let mut rendered = 0;
    for file in fixture_files("llamastack/valid") {
        let run = workspace.run(&["render", "-f", file.to_str().unwrap()]);
        match run.status {
            Some(0) => rendered += 1,
            Some(1) => assert!(run.err.contains(": document 1: spec."), "{}: {}", file.display(), run.err),
            other => panic!("{other:?}: {}", run.err),
        }
    }
    assert!(rendered >= 12, "{rendered}");
}
