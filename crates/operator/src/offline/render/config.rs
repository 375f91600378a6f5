//! Describes the server's configuration in the comments before the rendered objects.

use k8s_openapi::api::core::v1::EnvVar;
use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Base, Input, Merge, generate};
use steersman_reconcile::{FieldError, Message, message, path};

use crate::manifests::Place;
use crate::offline::one_line;

pub struct Configuration {
    /// Origin of the configuration.
    said: String,
    /// Variables that the server needs, with references to Secrets, never their values.
    variables: Vec<EnvVar>,
    /// Names of the init containers.
    before: Vec<String>,
}

impl Configuration {
    pub fn of_the_user(spec: &LlamaStackDistributionSpec) -> Self {
        let name = spec.override_config.as_ref().map(|config| config.config_map_name.as_str()).unwrap_or_default();
        Self::elsewhere(format!("ConfigMap {name}, as it is"))
    }

    pub fn of_the_image() -> Self {
        Self::elsewhere("the one inside the image; nothing is mounted".to_owned())
    }

    fn elsewhere(said: String) -> Self {
        Self { said, variables: Vec::new(), before: Vec::new() }
    }

    pub fn header(&self, object: &str, place: &Place, unlike: &[String]) -> String {
        let mut lines = vec![format!("{object} ({place})"), format!("configuration: {}", self.said)];
        if !self.variables.is_empty() {
            lines.push("variables that the server gets for it:".to_owned());
            lines.extend(self.variables.iter().map(|variable| format!("  {}", describe(variable))));
        }
        if !self.before.is_empty() {
            lines.push(format!("containers that run before the server: {}", self.before.join(", ")));
        }
        lines.extend(unlike.iter().map(|what| format!("note: {what}")));
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
) -> Result<Configuration, Vec<Message>> {
    let Some(base) = base else {
        let what = "the configuration inside an image is not known without its registry";
        return Err(vec![message![path!(spec.distribution.image), format!(": {what}. Give it with --base FILE.")]]);
    };
    let annotations = serde_json::from_value(stored["metadata"]["annotations"].clone()).ok();
    let merge = Merge::of(annotations.as_ref()).map_err(|error| vec![error.text()])?;
    let input = Input { spec, base: Some(base), merge, operator_image: "" };
    let made = generate(&input).map_err(|errors| errors.iter().map(FieldError::text).collect::<Vec<_>>())?;
    let version = if base.server_version.is_empty() { "version not known" } else { &base.server_version };
    let said = format!(
        "generated from the base of {} (llama-stack {version}), {} providers, resources added by the spec: {}, sha256 {}",
        base.name, made.provider_count, made.resource_count, made.hash
    );
    Ok(Configuration {
        said,
        before: made.pod.init_containers.iter().map(|container| container.name.clone()).collect(),
        variables: made.env.into_iter().chain(made.pod.env).collect(),
    })
}
