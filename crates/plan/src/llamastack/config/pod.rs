//! The parts of the pod that a configuration needs: init containers, volumes and variables. Values of the spec reach
//! containers as variables, never inside a script.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, ResourceRequirements, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;

use super::external::{self, External, INSTALL};
use super::secrets::SecretUse;
use super::storage::{KV_PASSWORD, Prepare, SQL_CONNECTION_STRING};

/// The volume with the ConfigMap of the configuration, which the Deployment adds, and its mount path.
pub const CONFIG_VOLUME: &str = "user-config";
pub const CONFIG_DIR: &str = "/etc/llama-stack";
/// The ConfigMap key with the server's configuration, and its path in the pod.
pub const CONFIG_KEY: &str = "config.yaml";
pub const CONFIG_PATH: &str = "/etc/llama-stack/config.yaml";
/// The key that early releases of the Go operator read. `CONFIG_KEY` precedes it.
pub const LEGACY_CONFIG_KEY: &str = "run.yaml";
pub const LEGACY_CONFIG_PATH: &str = "/etc/llama-stack/run.yaml";

/// The file after external providers were merged into it.
const MERGED_VOLUME: &str = "final-config";
const MERGED_DIR: &str = "/opt/llama-stack/config";
const MERGED: &str = "/opt/llama-stack/config/config.yaml";

const PACKAGES_VOLUME: &str = "external-providers";
const PACKAGES_DIR: &str = "/opt/llama-stack/external-providers";
const PACKAGES_SIZE: &str = "2Gi";

const PREPARED_VOLUME: &str = "storage-env";
const PREPARED_DIR: &str = "/run/steersman";
const PREPARED: &str = "/run/steersman/storage.env";

/// Memory limit of each init container. No field of the spec changes it.
pub const INIT_MEMORY_LIMIT: &str = "512Mi";

/// Variable with the list of external providers, for the container that merges them.
pub const EXTERNAL_VARIABLE: &str = "STEERSMAN_EXTERNAL_PROVIDERS";

/// Checks the content of the image, keeps its metadata for the merge, and installs its packages without network access.
const INSTALL_SCRIPT: &str = r#"set -eu
from=/lls-provider
fail() {
  echo "external provider $PROVIDER_ID: $1" >&2
  exit 1
}
[ -f "$from/lls-provider-spec.yaml" ] || fail "Missing $from/lls-provider-spec.yaml in image $PROVIDER_IMAGE"
[ -d "$from/packages" ] || fail "Missing $from/packages in image $PROVIDER_IMAGE"
mkdir -p "$PROVIDERS_DIR/metadata/$PROVIDER_ID" "$PROVIDERS_DIR/python-packages"
cp "$from/lls-provider-spec.yaml" "$PROVIDERS_DIR/metadata/$PROVIDER_ID/"
python3 -m pip install --target "$PROVIDERS_DIR/python-packages" --upgrade --no-index --no-cache-dir \
  --find-links "$from/packages" "$from"/packages/*.whl || fail "pip could not install the packages of $PROVIDER_IMAGE"
ls "$from/packages" | sed "s|^|$PROVIDER_ID |" >> "$PROVIDERS_DIR/installed-packages.txt"
"#;

/// Parts of the Deployment's pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    pub init_containers: Vec<Container>,
    pub volumes: Vec<Volume>,
    /// Mounts of the server's container.
    pub volume_mounts: Vec<VolumeMount>,
    /// Variables of the server's container.
    pub env: Vec<EnvVar>,
    /// The file that the server reads.
    pub config_path: &'static str,
    /// A script to source (`. file`) before the server starts.
    pub env_file: Option<&'static str>,
}

/// `config_path` is the path of the mounted configuration.
pub(super) fn parts(
    spec: &LlamaStackDistributionSpec,
    config_path: &'static str,
    prepare: Prepare,
    secrets: &[SecretUse],
    operator_image: &str,
) -> Pod {
    let mut pod = Pod { config_path, ..Pod::default() };
    if prepare.any() {
        prepared(&mut pod, prepare, secrets, operator_image);
    }
    let external = external::all(spec);
    if !external.is_empty() {
        let limit = spec.external_providers.as_ref().and_then(|external| external.volume_size_limit.clone());
        installed(&mut pod, &external, limit, operator_image);
    }
    pod
}

/// Uses a memory volume, so that the values touch no disk, ConfigMap or Secret of ours.
fn prepared(pod: &mut Pod, prepare: Prepare, secrets: &[SecretUse], operator_image: &str) {
    let wanted = [(prepare.sql_connection_string, SQL_CONNECTION_STRING), (prepare.kv_password, KV_PASSWORD)];
    let used = |name: &str| wanted.contains(&(true, name));
    let volume =
        EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: Some(Quantity("1Mi".to_owned())) };
    pod.volumes.push(empty_dir(PREPARED_VOLUME, volume));
    pod.init_containers.push(Container {
        args: Some(["storage-env", "--out", PREPARED].map(ToOwned::to_owned).to_vec()),
        env: Some(secrets.iter().filter(|secret| used(&secret.variable)).map(SecretUse::env).collect()),
        volume_mounts: Some(vec![mount(PREPARED_VOLUME, PREPARED_DIR, false)]),
        ..container("prepare-storage", operator_image)
    });
    pod.volume_mounts.push(mount(PREPARED_VOLUME, PREPARED_DIR, true));
    pod.env_file = Some(PREPARED);
}

fn installed(pod: &mut Pod, external: &[External], limit: Option<Quantity>, operator_image: &str) {
    let limit = limit.unwrap_or_else(|| Quantity(PACKAGES_SIZE.to_owned()));
    pod.volumes.push(empty_dir(PACKAGES_VOLUME, EmptyDirVolumeSource { medium: None, size_limit: Some(limit) }));
    pod.volumes.push(empty_dir(MERGED_VOLUME, EmptyDirVolumeSource::default()));
    for one in external {
        let env = [
            variable("PROVIDER_ID", &one.provider_id),
            variable("PROVIDER_IMAGE", &one.image),
            variable("PROVIDERS_DIR", PACKAGES_DIR),
        ];
        pod.init_containers.push(Container {
            command: Some(["/bin/sh", "-c", INSTALL_SCRIPT].map(ToOwned::to_owned).to_vec()),
            env: Some(env.to_vec()),
            image_pull_policy: Some(one.pull_policy.clone()),
            volume_mounts: Some(vec![mount(PACKAGES_VOLUME, PACKAGES_DIR, false)]),
            ..container(&format!("{INSTALL}{}", one.provider_id), &one.image)
        });
    }
    let metadata = format!("{PACKAGES_DIR}/metadata");
    let args = ["merge-providers", "--config", pod.config_path, "--metadata", &metadata, "--out", MERGED];
    pod.init_containers.push(Container {
        args: Some(args.map(ToOwned::to_owned).to_vec()),
        env: Some(vec![variable(EXTERNAL_VARIABLE, &json!(external).to_string())]),
        volume_mounts: Some(vec![
            mount(CONFIG_VOLUME, CONFIG_DIR, true),
            mount(PACKAGES_VOLUME, PACKAGES_DIR, true),
            mount(MERGED_VOLUME, MERGED_DIR, false),
        ]),
        ..container("generate-config", operator_image)
    });
    pod.volume_mounts.push(mount(PACKAGES_VOLUME, PACKAGES_DIR, true));
    pod.volume_mounts.push(mount(MERGED_VOLUME, MERGED_DIR, true));
    pod.env.push(variable("PYTHONPATH", &format!("{PACKAGES_DIR}/python-packages")));
    pod.config_path = MERGED;
}

fn container(name: &str, image: &str) -> Container {
    let amounts = |pairs: &[(&str, &str)]| -> BTreeMap<String, Quantity> {
        pairs.iter().map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned()))).collect()
    };
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        resources: Some(ResourceRequirements {
            requests: Some(amounts(&[("cpu", "100m"), ("memory", "256Mi")])),
            limits: Some(amounts(&[("memory", INIT_MEMORY_LIMIT)])),
            ..Default::default()
        }),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(1001),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..Default::default()
        }),
        // The last lines of the log become part of the pod's status, which the operator reads.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Default::default()
    }
}

fn empty_dir(name: &str, source: EmptyDirVolumeSource) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Default::default() }
}

pub fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..Default::default()
    }
}

pub fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}
