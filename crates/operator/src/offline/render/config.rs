//! Where the server's configuration comes from, and the ConfigMap that holds a generated one.
//! Comes in: the stored object and its base; goes out: the ConfigMap with its variables, or a sentence that says whose
//! configuration runs.

use k8s_openapi::api::core::v1::EnvVar;
use serde_json::{Value, json};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::llamastack::config::{Base, Generated, Input, Merge, generate};
use steersman_plan::llamastack::names;

use super::children::metadata;

pub struct Configuration {
    /// Whose it is, for people.
    pub said: String,
    /// Variables that the server needs for it; with references to Secrets, never their values.
    pub variables: Vec<EnvVar>,
    /// Containers that run before the server.
    pub before: Vec<String>,
    config_map: Option<Value>,
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
        Self { said, variables: Vec::new(), before: Vec::new(), config_map: None }
    }

    pub fn generated(&self) -> bool {
        self.config_map.is_some()
    }

    pub fn into_object(self) -> Option<Value> {
        self.config_map
    }
}

pub fn generated(
    stored: &Value,
    spec: &LlamaStackDistributionSpec,
    name: &str,
    base: Option<&Base>,
) -> Result<Configuration, Vec<String>> {
    let Some(base) = base else {
        let what = "the configuration inside an image is not known without its registry";
        return Err(vec![format!("spec.distribution.image: {what}. Give it with --base FILE.")]);
    };
    let annotations = serde_json::from_value(stored["metadata"]["annotations"].clone()).ok();
    let merge = Merge::of(annotations.as_ref()).map_err(|problem| vec![problem.text()])?;
    let input = Input { spec, base: Some(base), merge, operator_image: "" };
    let made =
        generate(&input).map_err(|problems| problems.iter().map(|problem| problem.text()).collect::<Vec<_>>())?;
    let version = if base.server_version.is_empty() { "version not known" } else { &base.server_version };
    let said = format!(
        "generated from the base of {} (llama-stack {version}), {} providers, resources added by the spec: {}, sha256 {}",
        base.name, made.provider_count, made.resource_count, made.hash
    );
    Ok(Configuration {
        said,
        config_map: Some(config_map(stored, name, &made)),
        before: made.pod.init_containers.iter().map(|container| container.name.clone()).collect(),
        variables: made.env.into_iter().chain(made.pod.env).collect(),
    })
}

/// Its name changes with its content, and what has a name is never changed.
fn config_map(stored: &Value, name: &str, made: &Generated) -> Value {
    let mut labels = names::labels();
    labels.extend(names::selector(name));
    labels.insert("app.kubernetes.io/component".to_owned(), "generated-config".to_owned());
    let short = made.hash.get(..8).unwrap_or(&made.hash);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(stored, format!("{name}-config-{short}"), json!(labels)),
        "immutable": true,
        "data": { "config.yaml": made.config_yaml },
    })
}
