//! Generates the server's `config.yaml` from a spec and the base configuration of its distribution.

mod apis;
pub mod base;
mod consistent;
mod disabled;
mod draft;
mod embeddings;
mod external;
mod ids;
mod kinds;
mod layout;
mod limits;
mod listen;
mod merge;
mod nearest;
mod needs;
mod pod;
pub mod problem;
mod providers;
mod prune;
mod render;
mod resources;
mod secrets;
mod settings;
mod storage;
mod version;

use k8s_openapi::api::core::v1::EnvVar;
use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{message, path};

use crate::content_hash;
use crate::llamastack::fields;
use draft::Draft;
use problem::reason;

pub use base::Base;
pub use consistent::remarks as without_effect;
pub use external::{
    External, INSTALL, Installed, all as external_providers, merge as merge_external,
    merge_files as merge_external_files,
};
pub use kinds::{PackageType, package_types};
pub use limits::{
    MAX_ALLOWED_FROM, MAX_DISABLED, MAX_NAME_BYTES, MAX_POD_ENTRIES, MAX_PROVIDERS, MAX_RESOURCES,
    MAX_SECRET_REFERENCES, MAX_SPREAD_CONSTRAINTS,
};
pub use listen::{TLS_CERT, TLS_KEY, TLS_PATH};
pub use merge::{ANNOTATION, Merge};
pub use pod::{
    CONFIG_DIR, CONFIG_KEY, CONFIG_PATH, CONFIG_VOLUME, EXTERNAL_VARIABLE, INIT_MEMORY_LIMIT, LEGACY_CONFIG_KEY,
    LEGACY_CONFIG_PATH, Pod, mount, variable,
};
pub use providers::kind_of;
pub use render::{hash_of_base, read as read_yaml};
pub use secrets::SecretUse;
pub use steersman_reconcile::FieldError;
pub use storage::{KV_PASSWORD, Parts, Prepare, SQL_CONNECTION_STRING, exports as storage_exports, parse as parse_sql};
pub use version::{SUPPORTED, detect as detect_version};

/// The source of the server's configuration, `config.yaml`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// A ConfigMap of the user. Only external providers are added to it.
    Override,
    /// Generated from the spec and the base.
    Generated,
    /// The file in the image; nothing is mounted.
    #[default]
    Distribution,
}

/// `always_mounted`: the file in the image is not that of the distribution, as with `remote-vllm`. Certificates and
/// external providers need a generated file, since the one in the image cannot be changed.
pub fn source(spec: &LlamaStackDistributionSpec, always_mounted: bool) -> Source {
    if spec.override_config.is_some() {
        return Source::Override;
    }
    let asked = spec.providers.is_some()
        || spec.resources.is_some()
        || spec.storage.is_some()
        || spec.disabled.as_ref().is_some_and(|disabled| !disabled.is_empty());
    let needed = fields::certificate(spec).is_some() || !external::all(spec).is_empty();
    if asked || needed || always_mounted { Source::Generated } else { Source::Distribution }
}

pub struct Input<'a> {
    pub spec: &'a LlamaStackDistributionSpec,
    /// Absent if there is no base, or if it is unknown.
    pub base: Option<&'a Base>,
    pub merge: Merge,
    /// Image of the init containers.
    pub operator_image: &'a str,
}

/// The file, and the parts of the pod that it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    pub config_yaml: String,
    /// SHA-256 of the text in hexadecimal digits.
    pub hash: String,
    pub config_version: i64,
    pub provider_count: i64,
    /// Number of resources that the spec adds.
    pub resource_count: i64,
    /// Variables with values of Secrets: unique, in a fixed order.
    pub env: Vec<EnvVar>,
    /// The required keys of Secrets, once for each place in the spec.
    pub secrets: Vec<SecretUse>,
    /// Fields that were left out or have no effect.
    pub remarks: Vec<FieldError>,
    pub pod: Pod,
}

impl Generated {
    /// The text of the event and the condition.
    pub fn summary(&self) -> String {
        let Self { provider_count, resource_count, .. } = self;
        format!("Generated config.yaml with {provider_count} providers and {resource_count} models")
    }
}

/// Returns all errors at once, so that the user can correct them in one round.
pub fn generate(input: &Input<'_>) -> Result<Generated, Vec<FieldError>> {
    let (mut draft, prepare) = build(input);
    let version = match input.base {
        Some(base) => detect_version(&base.config),
        None => Err(no_base(input)),
    };
    let version = version.unwrap_or_else(|problem| {
        draft.errors.insert(0, problem);
        0
    });
    if !draft.errors.is_empty() {
        return Err(draft.errors);
    }
    let providers = draft.config.get("providers").and_then(Value::as_object).into_iter().flatten();
    let env = draft.secrets.env();
    let is_set = |name: &str| {
        let given = env.iter().chain(fields::env(input.spec)).rfind(|variable| variable.name == name);
        given.is_some_and(|given| {
            given.value_from.is_some() || given.value.as_deref().is_some_and(|value| !value.is_empty())
        })
    };
    // The server leaves out a provider whose id needs a variable that is not set.
    let runs = |entry: &&Value| {
        draft::id_of(entry).is_some_and(|id| id.required_variable.is_none_or(|variable| is_set(&variable)))
    };
    let entries = providers.flat_map(|(_, entries)| draft::list(Some(entries)));
    let provider_count = entries.filter(runs).count() as i64;
    let config = Value::Object(draft.config);
    let config_yaml = render::yaml(&config).map_err(|problem| vec![problem])?;
    if config_yaml.len() > SIZE_LIMIT {
        return Err(vec![FieldError::new(
            path!(spec),
            reason::FAILED,
            format!("config.yaml has {} bytes, but at most {SIZE_LIMIT} bytes fit into a ConfigMap", config_yaml.len()),
            message![
                "Register models at runtime instead of in ",
                path!(spec.resources.models),
                ", or shorten settings."
            ],
        )]);
    }
    Ok(Generated {
        hash: content_hash::hex(&config_yaml),
        config_yaml,
        config_version: version,
        provider_count,
        resource_count: draft.resources,
        env,
        pod: pod::parts(input.spec, CONFIG_PATH, prepare, &draft.secrets.uses, input.operator_image),
        secrets: draft.secrets.uses,
        remarks: draft.remarks,
    })
}

/// A ConfigMap holds 1 MiB, including its name and labels.
const SIZE_LIMIT: usize = 1_000_000;

/// The result of checking a spec without writing the file.
pub struct Checked {
    pub errors: Vec<FieldError>,
    pub remarks: Vec<FieldError>,
    pub secrets: Vec<SecretUse>,
    /// The parts of the pod that the configuration needs.
    pub pod: Pod,
}

/// Checks a spec as `generate` does. Without a base, the checks that depend on it are skipped.
pub fn check(input: &Input<'_>) -> Checked {
    let (draft, prepare) = build(input);
    let version = input.base.and_then(|base| detect_version(&base.config).err());
    let errors = version.into_iter().chain(draft.errors).collect();
    let pod = pod::parts(input.spec, CONFIG_PATH, prepare, &draft.secrets.uses, input.operator_image);
    Checked { errors, remarks: draft.remarks, secrets: draft.secrets.uses, pod }
}

/// The parts of the pod of a server whose configuration is not generated. External providers are merged into the file
/// at `config_path`.
pub fn pod_without_generated_file(
    spec: &LlamaStackDistributionSpec,
    config_path: &'static str,
    operator_image: &str,
) -> Pod {
    pod::parts(spec, config_path, Prepare::default(), &[], operator_image)
}

pub fn check_without_file(spec: &LlamaStackDistributionSpec) -> Checked {
    let mut draft = Draft::new(spec, None);
    if draft.check_limits() {
        external::check(&mut draft);
    }
    let pod = pod_without_generated_file(spec, CONFIG_PATH, "");
    Checked { errors: draft.errors, remarks: draft.remarks, secrets: Vec::new(), pod }
}

/// Disabled APIs are removed before resources are bound, so that no model gets a provider that is not there.
fn build<'a>(input: &Input<'a>) -> (Draft<'a>, Prepare) {
    let mut draft = Draft::new(input.spec, input.base);
    if !draft.check_limits() {
        return (draft, Prepare::default());
    }
    let entries = providers::expand(&mut draft);
    let disabled = disabled::names(&mut draft);
    merge::providers(&mut draft, &entries, input.merge);
    disabled::remove(&mut draft, &disabled);
    external::check(&mut draft);
    prune::dependants(&mut draft, &entries);
    prune::references(&mut draft);
    resources::add(&mut draft, &entries);
    prune::default_shield(&mut draft);
    let prepare = storage::replace(&mut draft);
    listen::set(&mut draft);
    if input.base.is_some() {
        needs::report(&mut draft, prepare);
    }
    if prepare.any() {
        own_command(&mut draft);
    }
    (draft, prepare)
}

/// The prepared values reach the server only through the start script, which a user's command replaces.
fn own_command(draft: &mut Draft<'_>) {
    let command = fields::overrides(draft.spec).and_then(|overrides| overrides.command.as_ref());
    if command.is_some_and(|command| !command.is_empty()) {
        draft.remark(
            path!(spec.workload.overrides.command),
            reason::NEEDED,
            "the command replaces the start script, which loads the storage credentials into the environment",
            "Begin the command with `. /run/steersman/storage.env`, or remove it.",
        );
    }
}

fn no_base(input: &Input<'_>) -> FieldError {
    match &input.spec.distribution.name {
        Some(name) => FieldError::new(
            path!(spec.distribution.name),
            reason::FAILED,
            format!("failed to load embedded config for distribution {name:?}"),
            message![
                "Use a distribution of this release, or provide the whole configuration with ",
                path!(spec.overrideConfig),
                "."
            ],
        ),
        None => FieldError::new(
            path!(spec.distribution.image),
            reason::NO_BASE,
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image.",
            "See docs/configuration.md for details.",
        ),
    }
}
