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
mod listen;
mod merge;
mod needs;
mod pod;
pub mod problem;
mod providers;
mod prune;
mod render;
mod resources;
mod secrets;
mod settings;
mod source;
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
pub use listen::{Listen, TLS_CERT, TLS_KEY, TLS_PATH};
pub use merge::{ANNOTATION, Merge};
pub use pod::{CONFIG_DIR, CONFIG_PATH, CONFIG_VOLUME, EXTERNAL_VARIABLE, Pod};
pub use providers::kind_of;
pub use render::{hash_of_base, read as read_yaml};
pub use secrets::SecretUse;
pub use source::{Source, source};
pub use steersman_reconcile::FieldError;
pub use storage::{KV_PASSWORD, Parts, Prepare, SQL_CONNECTION_STRING, exports as storage_exports, parse as parse_sql};
pub use version::{SUPPORTED, detect as detect_version};

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
    /// Number of providers in the file.
    pub provider_count: i64,
    /// Number of resources that the spec adds.
    pub resource_count: i64,
    /// Variables with values of Secrets: unique, in a fixed order.
    pub env: Vec<EnvVar>,
    /// The required keys of Secrets, once for each place in the spec.
    pub secrets: Vec<SecretUse>,
    /// Fields that were left out or have no effect.
    pub remarks: Vec<FieldError>,
    pub listen: Listen,
    pub pod: Pod,
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
    let provider_count = draft::list_lengths(draft.config.get("providers"));
    let config = Value::Object(draft.config);
    let config_yaml = render::yaml(&config).map_err(|problem| vec![problem])?;
    if config_yaml.len() > SIZE_LIMIT {
        return Err(vec![too_large(config_yaml.len())]);
    }
    Ok(Generated {
        hash: content_hash::hex(&config_yaml),
        config_yaml,
        config_version: version,
        provider_count,
        resource_count: draft.resources,
        env: draft.secrets.env(),
        pod: pod::parts(input.spec, prepare, &draft.secrets.uses, input.operator_image),
        secrets: draft.secrets.uses,
        remarks: draft.remarks,
        listen: Listen::of(input.spec),
    })
}

/// A ConfigMap holds 1 MiB, including its name and labels.
const SIZE_LIMIT: usize = 1_000_000;

fn too_large(size: usize) -> FieldError {
    FieldError::new(
        path!(spec),
        reason::FAILED,
        format!("config.yaml has {size} bytes, more than the {SIZE_LIMIT} that fit into a ConfigMap"),
        message![
            "Register models while the server runs instead of in ",
            path!(spec.resources.models),
            ", or shorten settings."
        ],
    )
}

/// The result of checking a spec without writing the file.
pub struct Checked {
    pub errors: Vec<FieldError>,
    pub remarks: Vec<FieldError>,
    pub secrets: Vec<SecretUse>,
}

/// Checks a spec as `generate` does. Without a base, the checks that depend on it are skipped.
pub fn check(input: &Input<'_>) -> Checked {
    let (draft, _) = build(input);
    let version = input.base.and_then(|base| detect_version(&base.config).err());
    let errors = version.into_iter().chain(draft.errors).collect();
    Checked { errors, remarks: draft.remarks, secrets: draft.secrets.uses }
}

/// Checks an object whose file is not generated.
pub fn check_without_file(spec: &LlamaStackDistributionSpec) -> Checked {
    let mut draft = Draft::new(spec, None);
    draft.errors = consistent::errors(spec);
    draft.remarks = consistent::remarks(spec);
    external::check(&mut draft);
    Checked { errors: draft.errors, remarks: draft.remarks, secrets: Vec::new() }
}

/// Disabled APIs are removed before resources are bound, so that no model gets a provider that is not there.
fn build<'a>(input: &Input<'a>) -> (Draft<'a>, Prepare) {
    let mut draft = Draft::new(input.spec, input.base);
    draft.errors = consistent::errors(input.spec);
    draft.remarks = consistent::remarks(input.spec);
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
        draft.remarks.push(FieldError::new(
            path!(spec.workload.overrides.command),
            reason::NEEDED,
            "it replaces the start script, which puts the parts of the storage's address into the environment",
            "Begin the command with `. /run/steersman/storage.env`, or remove it.",
        ));
    }
}

fn no_base(input: &Input<'_>) -> FieldError {
    match &input.spec.distribution.name {
        Some(name) => FieldError::new(
            path!(spec.distribution.name),
            reason::FAILED,
            format!("failed to load embedded config for distribution {name:?}"),
            "Use a distribution of this release, or give the whole configuration by overrideConfig.",
        ),
        None => FieldError::new(
            path!(spec.distribution.image),
            reason::NO_BASE,
            "Direct image references require either overrideConfig.configMapName or OCI config labels on the image.",
            "See docs/configuration.md for details.",
        ),
    }
}
