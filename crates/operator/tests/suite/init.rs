//! The commands of the init containers, run through the binary: the files they write, their modes, and the messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use clap::Parser;
use serde_json::{Value, json};
use steersman::cli::{self, Cli};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{
    EXTERNAL_VARIABLE, Generated, Input, KV_PASSWORD, Merge, SQL_CONNECTION_STRING, base, generate,
};
use tempfile::TempDir;

use crate::command;

fn steersman(args: &[&str], env: &[(&str, &str)]) -> Output {
    command::steersman(args).envs(env.iter().copied()).output().unwrap()
}

fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn generate_config(spec: Value) -> Generated {
    let spec: LlamaStackDistributionSpec = serde_json::from_value(spec).unwrap();
    generate(&Input { spec: &spec, base: base::base("starter"), merge: Merge::Overlay, operator_image: "own:1" })
        .unwrap()
}

fn config_with_external_provider() -> Generated {
    generate_config(json!({
        "distribution": {"name": "starter"},
        "externalProviders": {"inference": [{"providerId": "openai", "image": "i/custom:1", "config": {"depth": 3}}]},
    }))
}

#[test]
fn init_containers_call_existing_commands() {
    let with_storage = generate_config(json!({
        "distribution": {"name": "starter"},
        "storage": {"sql": {"type": "postgres", "connectionString": {"name": "pg", "key": "dsn"}}},
    }));
    for (generated, name) in [(with_storage, "prepare-storage"), (config_with_external_provider(), "generate-config")] {
        let containers = generated.pod.init_containers;
        let container = containers.iter().find(|container| container.name == name).unwrap();
        assert_eq!(container.command, None, "the image's own entry point is the binary");
        let args = ["steersman".to_owned()].into_iter().chain(container.args.clone().unwrap());
        match Cli::try_parse_from(args).unwrap().command {
            cli::Command::StorageEnv(args) => {
                assert_eq!((name, args.out.to_str()), ("prepare-storage", generated.pod.env_file));
            }
            cli::Command::MergeProviders(args) => {
                assert_eq!((name, args.out.to_str()), ("generate-config", Some(generated.pod.config_path)));
            }
            other => panic!("{name} calls {other:?}"),
        }
    }
}

const PASSWORD: &str = "it's $HOME `x` @:/?#%";

fn storage_env(folder: &TempDir, env: &[(&str, &str)]) -> (Output, String) {
    let out = folder.path().join("storage.env");
    let output = steersman(&["storage-env", "--out", out.to_str().unwrap()], env);
    (output, fs::read_to_string(out).unwrap_or_default())
}

/// The value of a variable in a shell that has sourced the script.
fn value_in_shell(script: &Path, name: &str) -> String {
    let print = format!(". {} && printf %s \"${name}\"", script.display());
    let output = Command::new("/bin/sh").args(["-euc", &print]).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn storage_env_writes_a_shell_script_silently() {
    let folder = tempfile::tempdir().unwrap();
    let dsn = "postgresql://llama:it's%20$HOME@db.example:6432/stack?sslmode=require";
    let (output, script) = storage_env(&folder, &[(SQL_CONNECTION_STRING, dsn), (KV_PASSWORD, PASSWORD)]);
    assert_eq!((output.status.code(), output_text(&output).as_str()), (Some(0), ""));
    let path = folder.path().join("storage.env");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(script.lines().count(), 6);
    for (name, wanted) in [
        ("LLSD_STORAGE_SQL_HOST", "db.example"),
        ("LLSD_STORAGE_SQL_PORT", "6432"),
        ("LLSD_STORAGE_SQL_DB", "stack?ssl=require"),
        ("LLSD_STORAGE_SQL_USER", "%6Clama"),
        ("LLSD_STORAGE_SQL_PASSWORD", "%69t%27s%20%24HOME"),
        (KV_PASSWORD, "%69t%27s%20%24HOME%20%60x%60%20%40%3A%2F%3F%23%25"),
    ] {
        assert_eq!(value_in_shell(&path, name), wanted, "{name}");
    }
}

#[test]
fn storage_env_replaces_files_of_earlier_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("storage.part"), "half").unwrap();
    for password in ["first", "second"] {
        let (output, script) = storage_env(&folder, &[(KV_PASSWORD, password)]);
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        assert!(script.contains(&password[1..]) && script.lines().count() == 1, "{password}");
    }
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["storage.env"]);
}

#[test]
fn storage_env_names_invalid_variable_without_value() {
    let correct = "; correct the value in the Secret\n";
    for (env, wanted) in [
        (vec![], format!("neither {SQL_CONNECTION_STRING} nor {KV_PASSWORD} is set; set one of them from a Secret\n")),
        (
            vec![(KV_PASSWORD, "\n")],
            format!("environment variable {KV_PASSWORD} is empty; set a value in the Secret that it comes from\n"),
        ),
        (
            vec![(SQL_CONNECTION_STRING, "mysql://root:hunter2@h/d")],
            format!(
                "{SQL_CONNECTION_STRING}: the connection string is not for PostgreSQL; it must begin with \
                 postgresql://{correct}"
            ),
        ),
        (
            vec![(SQL_CONNECTION_STRING, "postgresql://u:hunter2@h:port/d"), (KV_PASSWORD, "hunter2")],
            format!("{SQL_CONNECTION_STRING}: the port of the connection string is not a number{correct}"),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (output, script) = storage_env(&folder, &env);
        assert_eq!((output.status.code(), output_text(&output)), (Some(1), format!("steersman: {wanted}")));
        assert_eq!(script, "", "no file is written");
        assert!(!output_text(&output).contains("hunter2"));
    }
    let output = steersman(&["storage-env", "--out", "/nowhere/storage.env"], &[(KV_PASSWORD, "hunter2")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).starts_with("steersman: cannot write /nowhere/storage.env: "),
        "{}",
        output_text(&output)
    );
}

/// The shared folder of a pod as the installing containers leave it.
struct ProviderFolder {
    folder: TempDir,
    list: String,
}

impl ProviderFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let generated = config_with_external_provider();
        fs::write(folder.path().join("config.yaml"), &generated.config_yaml).unwrap();
        let merge = generated.pod.init_containers.last().unwrap().env.clone().unwrap();
        assert_eq!(merge[0].name, EXTERNAL_VARIABLE);
        Self { folder, list: merge[0].value.clone().unwrap() }
    }

    fn write_metadata(&self, text: &str) {
        let folder = self.folder.path().join("metadata/openai");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("lls-provider-spec.yaml"), text).unwrap();
    }

    fn merge(&self, list: &str) -> Output {
        let path = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let args = ["--config", &path("config.yaml"), "--metadata", &path("metadata"), "--out", &path("merged.yaml")];
        steersman(&[["merge-providers"].as_slice(), &args].concat(), &[(EXTERNAL_VARIABLE, list)])
    }

    fn merged(&self) -> Option<Value> {
        let text = fs::read_to_string(self.folder.path().join("merged.yaml")).ok()?;
        Some(serde_saphyr::from_str(&text).unwrap())
    }
}

const METADATA: &str = "{apiVersion: llamastack.io/v1alpha1, kind: ProviderPackage, metadata: {name: custom, version: '1', \
                        vendor: us}, spec: {packageName: custom_module, providerType: 'remote::custom', api: inference, \
                        wheelPath: x.whl}}";

#[test]
fn fr_092_external_provider_replaces_base_with_warning() {
    let providers = ProviderFolder::new();
    providers.write_metadata(METADATA);
    let output = providers.merge(&providers.list);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert_eq!(
        output_text(&output),
        "warning: spec.externalProviders.inference[0].providerId: External provider 'openai' overrides base provider in API \
         'inference' (base remote::openai, external remote::custom). Give it another providerId to keep both.\n"
    );
    let merged = providers.merged().unwrap();
    let list = merged["providers"]["inference"].as_array().unwrap();
    let same: Vec<&Value> = list.iter().filter(|entry| entry["provider_id"] == "openai").collect();
    assert_eq!(
        same,
        [
            &json!({"provider_id": "openai", "provider_type": "remote::custom", "module": "custom_module", "config": {"depth": 3}})
        ]
    );
}

#[test]
fn merge_providers_refuses_images_with_invalid_metadata() {
    for (metadata, wanted) in [
        (None, "Missing /lls-provider/lls-provider-spec.yaml in image i/custom:1. Rebuild the image"),
        (Some("a: ["), "/lls-provider/lls-provider-spec.yaml in image i/custom:1: not valid YAML"),
        (Some("{kind: Other}"), "kind: expected ProviderPackage, got Other."),
    ] {
        let providers = ProviderFolder::new();
        metadata.into_iter().for_each(|text| providers.write_metadata(text));
        let output = providers.merge(&providers.list);
        assert_eq!(output.status.code(), Some(1));
        let text = output_text(&output);
        assert!(
            text.starts_with("steersman: spec.externalProviders.inference[0]: ") && text.contains(wanted),
            "{text}"
        );
        assert_eq!(providers.merged(), None);
    }
}

#[test]
fn merge_providers_reads_only_its_folder() {
    let providers = ProviderFolder::new();
    let list = providers.list.replace("\"openai\"", "\"../../etc\"");
    let output = providers.merge(&list);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output_text(&output).contains("the provider id \"../../etc\" is not the name of a folder"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn merge_providers_names_missing_inputs() {
    let providers = ProviderFolder::new();
    let output = steersman(&["merge-providers", "--config", "/no", "--metadata", "/no", "--out", "/no/o"], &[]);
    let wanted = format!("steersman: cannot read {EXTERNAL_VARIABLE}, the list of providers as JSON: ");
    assert!(output_text(&output).starts_with(&wanted), "{}", output_text(&output));
    fs::remove_file(providers.folder.path().join("config.yaml")).unwrap();
    assert!(
        output_text(&providers.merge(&providers.list)).starts_with("steersman: cannot read "),
        "the message names the file"
    );
}
