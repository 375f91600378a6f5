//! Runs the commands of docs/install.md and docs/troubleshooting.md on a cluster whose pods are simulated.

use serde_json::Value;
use steersman::installation::NAMESPACE;
use steersman_testkit::binaries::HELM;
use steersman_testkit::{Flavour, shared_cluster, skip};

use crate::installation::{FAMILIES, Installation, UsersObjects};
use crate::private_cluster::private_cluster;
use crate::shell::{Shell, code_blocks, code_under, root};

const USERS_NAMESPACE: &str = "team-docs";

/// The registry that replaces the placeholder of the page.
const REGISTRY: &str = "registry.example.com";

fn of_install_page(heading: &str) -> String {
    at_registry(&code_under(&code_blocks("install"), heading, "sh"))
}

fn at_registry(commands: &str) -> String {
    commands.replace("REGISTRY", REGISTRY)
}

/// The commands of a heading with several blocks that contain this word.
fn block_with(heading: &str, word: &str) -> String {
    let blocks = code_blocks("install");
    let found = blocks.into_iter().find(|block| block.heading == heading && block.text.contains(word));
    found.unwrap_or_else(|| panic!("no block with {word} under {heading}")).text
}

/// The image of the operator's pods, and the one that it adds to other pods.
async fn images(installation: &Installation) -> (String, String) {
    let container = installation.deployment().await.spec.unwrap().template.spec.unwrap().containers.remove(0);
    let added = container.env.unwrap().into_iter().find(|variable| variable.name == "OPERATOR_IMAGE").unwrap();
    (container.image.unwrap(), added.value.unwrap())
}

/// Objects of these kinds with the name of the operator.
fn leftovers(installation: &Installation, kinds: &[&str]) -> Vec<String> {
    let listed = installation.kubectl(&[&["get", "-o", "name"], kinds].concat()).ok();
    // The role of the program that simulates nodes.
    let of_operator = |line: &&str| line.contains("steersman") && !line.contains("steersman:kwok");
    listed.lines().filter(of_operator).map(str::to_owned).collect()
}

fn both(image: &str) -> (String, String) {
    (image.to_owned(), image.to_owned())
}

/// From the installation by one file, by the commands of troubleshooting, to the uninstall without Helm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_one_file_installation_work() {
    let Some(private) = private_cluster().await else { return };
    let installation = Installation::new(private.cluster, NAMESPACE).await;
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(private.cluster, &folder.path().join("steersman.log"));
    let installed = shell.run(&of_install_page("One file")).await.ok();
    assert!(installed.contains("successfully rolled out"), "{installed}");
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.0"));

    let operator = installation.start_operator("docs", folder.path()).await;
    let forwarder = installation.forward_webhooks(&operator).await;
    installation.create_namespace(USERS_NAMESPACE).await;
    let users = UsersObjects::new(&installation, USERS_NAMESPACE);
    users.create(&FAMILIES, &operator).await;
    users.wait_for_effects(&FAMILIES, &operator).await;

    for (heading, expected) in [
        ("Troubleshooting", "Ready: "),
        ("The installation fails", "pod/steersman-"),
        ("The certificate of the webhook is not trusted", "secret/steersman-webhook-certificate annotate"),
        ("Objects are not reconciled", "steersman"),
        ("A permission is missing", "clusterrole.rbac.authorization.k8s.io/steersman"),
    ] {
        let commands = code_under(&code_blocks("troubleshooting"), heading, "sh");
        let object = format!("describe llsd stack -n {USERS_NAMESPACE}");
        let printed = shell.run(&commands.replace("describe KIND NAME -n NAMESPACE", &object)).await.ok();
        assert!(printed.contains(expected), "{commands}\n{printed}");
    }

    // The upgrade finds the objects as they were installed.
    installation.route_webhooks_to(443);
    let upgrade = of_install_page("Upgrade with one file").replace("REGISTRY", REGISTRY);
    let newer = format!("{REGISTRY}/steersman:0.1.1");
    shell.run(&upgrade.replace("|registry.example.com/steersman:0.1.0|", &format!("|{newer}|"))).await.ok();
    assert_eq!(images(&installation).await, both(&newer));
    let rolled_back = shell.run(&block_with("Rollback", "rollout undo")).await.ok();
    assert!(rolled_back.contains("successfully rolled out"), "{rolled_back}");
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.0"));

    installation.route_webhooks_to(forwarder.port());
    let uninstall = of_install_page("Uninstall without Helm");
    let of_troubleshooting = code_under(&code_blocks("troubleshooting"), "The operator was uninstalled", "sh");
    for command in of_troubleshooting.lines().filter_map(|line| line.split('#').next()) {
        assert!(uninstall.contains(command.trim()), "{command} is not a command of the uninstall");
    }
    let detached = shell.run(&uninstall).await.ok();
    assert!(detached.contains("llamastackdistributions.llamastack.io: detached"), "{detached}");
    drop(operator);
    let kinds =
        "namespaces,clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations";
    assert_eq!(leftovers(&installation, &[kinds]), Vec::<String>::new());
    users.use_and_delete(&FAMILIES).await;
    let removed = shell.run(&block_with("Uninstall with Helm", "kubectl delete crd")).await.ok();
    assert_eq!(removed.lines().count(), 3, "{removed}");
}

/// The pods of the hooks do nothing here and succeed.
#[tokio::test]
async fn commands_of_helm_installation_work() {
    if HELM.find().unwrap().is_none() {
        let test = "docs::commands_of_helm_installation_work";
        return skip::skip(test, "helm is not built; `cargo xtask test` builds it");
    }
    let Some(private) = private_cluster().await else { return };
    let installation = Installation::new(private.cluster, NAMESPACE).await;
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(private.cluster, &folder.path().join("no-log"));
    shell.run(&of_install_page("Helm")).await.ok();
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.0"));
    let upgrade = of_install_page("Upgrade with Helm");
    let to_next = upgrade.replace("--reset-then-reuse-values", "--reset-then-reuse-values --set image.tag=0.1.1");
    shell.run(&to_next).await.ok();
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.1"), "the registry is kept");
    let upgraded = shell.run(&upgrade).await.ok();
    assert!(upgraded.contains("REVISION: 3") && upgraded.contains("successfully rolled out"), "{upgraded}");
    shell.run("helm rollback steersman 1 --namespace steersman-system").await.ok();
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.0"));
    shell.run(&block_with("Rollback", "helm rollback")).await.ok();
    assert_eq!(images(&installation).await, both("registry.example.com/steersman:0.1.1"));
    shell.run(&block_with("Uninstall with Helm", "helm uninstall")).await.ok();
    assert_eq!(leftovers(&installation, &["deployments,clusterroles", "-A"]), Vec::<String>::new());
    installation.kubectl(&["delete", "namespace", NAMESPACE]).ok();
}

#[tokio::test]
async fn commands_of_kustomize_installation_work() {
    let Some(private) = private_cluster().await else { return };
    let installation = Installation::new(private.cluster, NAMESPACE).await;
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(private.cluster, &folder.path().join("no-log"));
    let install = of_install_page("Kustomize");
    let applied = shell.run(&install).await.ok();
    assert!(applied.contains("deployment.apps/steersman serverside-applied"), "{applied}");
    assert_eq!(images(&installation).await, both("steersman:0.1.0"));

    // A kustomization of one's own has its folders elsewhere.
    let own = folder.path().join("own");
    std::fs::create_dir_all(&own).unwrap();
    let copy = format!("cp -r {}/deploy {}", root().display(), folder.path().display());
    shell.run(&copy).await.ok();
    let snippet = code_under(&code_blocks("install"), "Kustomize", "yaml");
    let local = snippet.replace("github.com/ORG/steersman//", "../");
    assert_ne!(local, snippet);
    std::fs::write(own.join("kustomization.yaml"), local).unwrap();
    let rendered = shell.run(&format!("kubectl kustomize {}", own.display())).await.ok();
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.com/steersman:0.1.0");
    let variables = container["env"].as_array().unwrap();
    let added = variables.iter().find(|variable| variable["name"] == "OPERATOR_IMAGE").unwrap();
    assert_eq!(added["value"], "registry.example.com/steersman:0.1.0");
    assert_eq!(variables.len(), 3, "the other variables stay");

    shell.run("kubectl delete -k deploy/kustomize/base --timeout=120s").await.ok();
}

/// The first column of the table of symptoms quotes what kubectl and helm print.
#[tokio::test]
async fn quoted_symptoms_are_those_of_the_tools() {
    if HELM.find().unwrap().is_none() {
        let test = "docs::quoted_symptoms_are_those_of_the_tools";
        return skip::skip(test, "helm is not built; `cargo xtask test` builds it");
    }
    let Some(cluster) = shared_cluster(Flavour::Bare).await else { return };
    let namespace = cluster.namespace("symptoms").await.unwrap();
    let name = namespace.name();
    let page = std::fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let shell = Shell::new(cluster, std::path::Path::new("/dev/null"));
    let install = format!("helm install symptoms deploy/chart --dry-run=server --namespace {name}");
    let owned = format!("kubectl create serviceaccount symptoms-steersman -n {name} && {install}");
    for (command, symptom) in [
        (&format!("{install} --set metrics.serviceMonitor.enabled=true"), "no matches for kind \"ServiceMonitor\""),
        (&format!("{install} --set replica=3"), "values don't meet the specifications of the schema"),
        (&owned, "invalid ownership metadata"),
    ] {
        let error = shell.run(command).await.failure();
        assert!(error.contains(symptom), "{command}: {error}");
        assert!(page.contains(&format!("`{symptom}`")), "the page does not quote {symptom}");
    }
}
