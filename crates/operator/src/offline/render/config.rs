//! Describes the server's configuration in the comments before the rendered objects.

use k8s_openapi::api::core::v1::EnvVar;
use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Base, CONFIG_PATH, Input, Merge, generate, pod_without_generated_file};
use steersman_reconcile::{FieldError, Message, message, path};

use crate::manifests::DocumentLocation;
use crate::offline::one_line;

pub struct ConfigDescription {
    /// Origin of the configuration.
    origin: String,
    /// Variables that the server needs, with references to Secrets, never their values.
    variables: Vec<EnvVar>,
    /// Names of the init containers.
    init_containers: Vec<String>,
}

impl ConfigDescription {
    pub fn of_the_user(spec: &LlamaStackDistributionSpec) -> Self {
        let name = spec.override_config.as_ref().map(|config| config.config_map_name.as_str()).unwrap_or_default();
        let pod = pod_without_generated_file(spec, CONFIG_PATH, "");
        let added = if pod.init_containers.is_empty() { "unchanged" } else { "with the external providers added" };
        Self {
            origin: format!("ConfigMap {name}, {added}"),
            init_containers: pod.init_containers.into_iter().map(|container| container.name).collect(),
            variables: pod.env,
        }
    }

    pub fn of_the_image() -> Self {
        let origin = "the file inside the image; nothing is mounted".to_owned();
        Self { origin, variables: Vec::new(), init_containers: Vec::new() }
    }

    pub fn header(&self, object: &str, location: &DocumentLocation, differences: &[String]) -> String {
        let mut lines = vec![format!("{object} ({location})"), format!("configuration: {}", self.origin)];
        if !self.variables.is_empty() {
            lines.push("environment variables of the server:".to_owned());
            lines.extend(self.variables.iter().map(|variable| format!("  {}", describe(variable))));
        }
        if !self.init_containers.is_empty() {
            lines.push(format!("init containers: {}", self.init_containers.join(", ")));
        }
        lines.extend(differences.iter().map(|what| format!("note: {what}")));
        lines.iter().map(|line| format!("# {}\n", one_line(line))).collect()
    }
}

fn describe(variable: &EnvVar) -> String {
    let name = &variable.name;
    match variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) {
        Some(key) => format!("{name}: key {} of Secret {}", key.key, key.name),
        None => format!("{name}: {}", variable.value.as_deref().unwrap_or_default()),
    }
}

pub fn generated(
    stored: &Value,
    spec: &LlamaStackDistributionSpec,
    base: Option<&Base>,
) -> Result<ConfigDescription, Vec<Message>> {
    let Some(base) = base else {
        let what = "the configuration inside the image is unknown without its registry";
        return Err(vec![message![path!(spec.distribution.image), format!(": {what}. Pass it with --base FILE.")]]);
    };
    let annotations = serde_json::from_value(stored["metadata"]["annotations"].clone()).ok();
    let merge = Merge::of(annotations.as_ref()).map_err(|error| vec![error.text()])?;
    let input = Input { spec, base: Some(base), merge, operator_image: "" };
    let generated = generate(&input).map_err(|errors| errors.iter().map(FieldError::text).collect::<Vec<_>>())?;
    let version = if base.server_version.is_empty() { "version unknown" } else { &base.server_version };
    let origin = format!(
        "generated from the base of {} (llama-stack {version}), {} providers, resources added by the spec: {}, sha256 {}",
        base.name, generated.provider_count, generated.resource_count, generated.hash
    );
    Ok(ConfigDescription {
        origin,
        init_containers: generated.pod.init_containers.iter().map(|container| container.name.clone()).collect(),
        variables: generated.env.into_iter().chain(generated.pod.env).collect(),
    })
}
