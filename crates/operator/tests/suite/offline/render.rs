//! `steersman render`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Input, Merge, base, generate};
use steersman_testkit::{Flavour, shared};

use super::{Desk, NEW, OLD, Ran, SERVICE, files_of, on};

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

fn kinds(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["kind"].as_str().unwrap()).collect()
}

#[test]
fn the_config_map_holds_what_the_engine_generates_under_a_name_of_its_hash() {
    let ran = on(NEW, &["render"]);
    let documents = ran.fine().documents();
    let map = of_kind(&documents, "ConfigMap").unwrap();
    let object: Value = serde_saphyr::from_str(NEW).unwrap();
    let spec: LlamaStackDistributionSpec = serde_json::from_value(object["spec"].clone()).unwrap();
    let input = Input { spec: &spec, base: base::base("starter"), merge: Merge::Overlay, operator_image: "" };
    let generated = generate(&input).unwrap();
    assert_eq!(map["data"], json!({"config.yaml": generated.config_yaml}));
    assert_eq!(map["metadata"]["name"], format!("new-config-{}", &generated.hash[..8]));
    assert_eq!(map["metadata"]["namespace"], "team-a");
    assert_eq!(map["metadata"]["labels"]["app.kubernetes.io/component"], "generated-config");
    assert_eq!(map["immutable"], true);
    assert!(ran.out.contains(&format!("sha256 {}", generated.hash)), "{}", ran.out);
}

#[test]
fn comments_say_where_it_is_from_and_which_variables_it_needs() {
    let ran = on(NEW, &["render"]);
    for line in [
        "# LlamaStackDistribution team-a/new (cr.yaml: document 1)\n",
        "# configuration: generated from the base of starter (llama-stack 0.7.1), ",
        "#   LLSD_PRIMARY_API_KEY: key token of Secret vllm\n",
    ] {
        assert!(ran.fine().out.contains(line), "{line:?} is not in:\n{}", ran.out);
    }
    let postgres = NEW.replace(
        "  resources:",
        "  storage: {sql: {type: postgres, connectionString: {name: pg, key: dsn}}}\n  resources:",
    );
    let ran = on(&postgres, &["render"]);
    for line in [
        "# containers that run before the server: prepare-storage\n",
        "# note: the image \"steersman\" stands for the operator's own\n",
    ] {
        assert!(ran.fine().out.contains(line), "{line:?} is not in:\n{}", ran.out);
    }
}

#[test]
fn an_object_without_a_configuration_of_its_own_is_rendered_whole() {
    let ran = on(OLD, &["render"]);
    let documents = ran.fine().documents();
    assert_eq!(kinds(&documents), ["ServiceAccount", "Deployment", "Service", "PodDisruptionBudget"]);
    let deployment = of_kind(&documents, "Deployment").unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["name"], "mine");
    assert_eq!(deployment["metadata"]["name"], "old");
    assert!(ran.out.contains("# configuration: the one inside the image; nothing is mounted\n"), "{}", ran.out);
    assert_eq!(ran.err, "");
}

#[test]
fn both_versions_of_an_object_render_the_same() {
    let old = on(OLD, &["render", "-o", "json"]);
    let converted = on(OLD, &["convert"]);
    let new = on(&converted.fine().out, &["render", "-o", "json"]);
    assert_eq!(old.fine().out, new.fine().out);
}

#[test]
fn the_defaults_of_the_api_server_count() {
    // With anything under networking the API server fills in a port, and a port makes a Service.
    let with = NEW.replace("  resources:", "  networking: {allowedFrom: {namespaces: [b]}}\n  resources:");
    assert!(of_kind(&on(&with, &["render"]).fine().documents(), "Service").is_some());
}

#[test]
fn json_is_one_list_of_all_objects() {
    let ran = on(&format!("{OLD}---\n{SERVICE}---\n{NEW}"), &["render", "-o", "json"]);
    let list = ran.fine().json();
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
fn the_owner_is_named_only_if_the_manifest_knows_its_uid() {
    let documents = on(NEW, &["render"]).fine().documents();
    assert!(documents.iter().all(|object| object["metadata"]["ownerReferences"].is_null()));
    let stored = NEW.replace("  name: new", "  name: new\n  uid: 0c7e");
    for object in on(&stored, &["render"]).fine().documents() {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["apiVersion"]), (&json!("0c7e"), &json!("llamastack.io/v1alpha2")));
    }
}

#[test]
fn an_image_needs_its_base_and_takes_it_from_a_file() {
    let custom = NEW.replace("name: starter", "image: registry.example/mine:1");
    let desk = Desk::with(&[
        ("cr.yaml", &custom),
        ("base.yaml", "version: 2\napis: [inference]\nproviders: {inference: []}\n"),
        ("none.yaml", "a: 1\n"),
    ]);
    desk.run(&["render", "-f", "cr.yaml"])
        .refused(1, "spec.distribution.image: the configuration inside an image is not known without its registry. Give it with --base FILE.");
    let ran = desk.run(&["render", "-f", "cr.yaml", "--base", "base.yaml"]);
    let config = of_kind(&ran.fine().documents(), "ConfigMap").unwrap()["data"]["config.yaml"].clone();
    let config: Value = serde_saphyr::from_str(config.as_str().unwrap()).unwrap();
    assert_eq!(config["providers"]["inference"].as_array().unwrap().len(), 1);
    desk.run(&["render", "-f", "cr.yaml", "--base", "gone.yaml"]).refused(2, "gone.yaml: ");
    desk.run(&["render", "-f", "cr.yaml", "--base", "none.yaml"])
        .refused(1, "none.yaml: it has no mapping `providers`");
}

#[test]
fn a_configuration_of_the_user_is_mounted_and_hashed_where_it_is_among_the_files() {
    let own = OLD.replace("    containerSpec:", "    userConfig: {configMapName: hand-made}\n    containerSpec:");
    let map = |text: &str| {
        format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: hand-made}}\ndata: {{config.yaml: {text}}}\n")
    };
    let hash = |ran: &Ran| {
        let deployment = of_kind(&ran.fine().documents(), "Deployment").unwrap().clone();
        let template = &deployment["spec"]["template"];
        let mounted = template["spec"]["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|volume| volume["configMap"]["name"] == "hand-made");
        assert!(mounted, "{template}");
        template["metadata"]["annotations"]["configmap.hash/user-config"].as_str().unwrap().to_owned()
    };
    let alone = on(&own, &["render"]);
    assert!(alone.fine().out.contains("# configuration: ConfigMap hand-made, as it is\n"), "{}", alone.out);
    let said = "cr.yaml: document 1: note: ConfigMap hand-made is not among the files";
    assert!(alone.err.contains(said), "{}", alone.err);
    let (one, other) = (on(&format!("{own}{}", map("a")), &["render"]), on(&format!("{own}{}", map("b")), &["render"]));
    assert!(!one.err.contains("note: "), "{}", one.err);
    assert_ne!(hash(&one), hash(&other));
    assert_ne!(hash(&alone), hash(&one));
    let keyless = own.clone() + &map("a").replace("config.yaml", "other.yaml");
    on(&keyless, &["render"])
        .refused(1, "failed to read config from ConfigMap \"hand-made\": missing 'config.yaml' key");
}

#[test]
fn an_invalid_object_is_refused_as_by_validate_and_nothing_is_printed() {
    let wrong = NEW.replace("models: [llama]", "models: [{name: m, provider: nobody}]");
    let text = format!("{OLD}---\n{wrong}");
    let validated = on(&text, &["validate"]);
    let ran = on(&text, &["render"]);
    ran.refused(1, "cr.yaml: document 2: spec.resources.models[0].provider: ");
    let errors = |said: &str| said.lines().filter(|line| line.contains("spec.")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(errors(&ran.err), errors(&validated.err));
    on(&NEW.replace("name: new", "generateName: new-"), &["render"]).refused(1, "metadata.name: Required value");
    let taken =
        OLD.replace("    containerSpec:", "    podOverrides: {volumes: [{name: a}, {name: a}]}\n    containerSpec:");
    on(&taken, &["render"]).refused(1, "spec.server.podOverrides.volumes has \"a\" twice.");
}

#[test]
fn merging_follows_the_annotation() {
    let whole = on(NEW, &["render"]).fine().out.matches("provider_type: remote::").count();
    let annotated = NEW.replace("  name: new", "  name: new\n  annotations: {steersman.dev/provider-merge: replace}");
    let replaced = on(&annotated, &["render"]).fine().out.matches("provider_type: remote::").count();
    assert!(replaced < whole, "{replaced} {whole}");
}

#[tokio::test]
async fn a_real_api_server_takes_what_is_rendered() {
    let Some(cluster) = shared(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("render").await.unwrap();
    let stored = OLD.replace("    containerSpec:", "    storage: {size: 5Gi}\n    containerSpec:");
    let generated = NEW.replace("  namespace: team-a\n", "");
    let ran = on(&format!("{stored}---\n{generated}"), &["render"]);
    namespace.apply(&ran.fine().out).await.unwrap();
    let deployment = namespace.all::<Deployment>().get("old").await.unwrap();
    assert_eq!(deployment.spec.unwrap().replicas, Some(2));
    namespace.all::<PersistentVolumeClaim>().get("old-pvc").await.unwrap();
    let rendered = ran.documents();
    let rendered = of_kind(&rendered, "ConfigMap").unwrap();
    let live = namespace.all::<ConfigMap>().get(rendered["metadata"]["name"].as_str().unwrap()).await.unwrap();
    assert_eq!(json!(live.data), rendered["data"]);
}

/// What is refused is refused for a reason of the object; nothing ends in a crash.
#[test]
fn every_valid_manifest_is_rendered_or_refused_in_words() {
    let desk = Desk::with(&[]);
    let mut rendered = 0;
    for file in files_of("llamastack/valid") {
        let ran = desk.run(&["render", "-f", file.to_str().unwrap()]);
        match ran.status {
            Some(0) => rendered += 1,
            Some(1) => assert!(ran.err.contains(": document 1: spec."), "{}: {}", file.display(), ran.err),
            other => panic!("{other:?}: {}", ran.err),
        }
    }
    assert!(rendered >= 12, "{rendered}");
}
