//! Providers that are installed from images of their own.

mod merge;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, PullPolicy};
use steersman_reconcile::{FieldPath, message, path};

use super::draft::Draft;
use super::problem::reason;
use super::{FieldError, apis};

pub use merge::{Installed, merge, merge_files};

/// The id with the prefix `install-provider-` is the name of a container.
const ID_LIMIT: usize = 63 - INSTALL.len();
pub const INSTALL: &str = "install-provider-";

/// An external provider, as it is passed to the container that merges it into the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    pub provider_id: String,
    /// Name in the file.
    pub api: String,
    /// Name in the spec.
    pub section: String,
    pub image: String,
    pub pull_policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    pub path: FieldPath,
}

/// All external providers, in the order in which they are installed.
pub fn all(spec: &LlamaStackDistributionSpec) -> Vec<External> {
    let Some(external) = &spec.external_providers else { return Vec::new() };
    let each = apis::of_external(external).into_iter().flat_map(|(api, list)| {
        list.iter().enumerate().map(move |(place, one)| External {
            provider_id: one.provider_id.clone(),
            api: api.key.to_owned(),
            section: api.field.to_owned(),
            image: one.image.clone(),
            pull_policy: match one.image_pull_policy.unwrap_or_default() {
                PullPolicy::Always => "Always",
                PullPolicy::Never => "Never",
                PullPolicy::IfNotPresent => "IfNotPresent",
            }
            .to_owned(),
            config: one.config.clone().filter(|config| !config.is_null()),
            path: path!(spec.externalProviders).field(api.field).index(place),
        })
    });
    each.collect()
}

pub(super) fn check(draft: &mut Draft<'_>) {
    let all = all(draft.spec);
    let mut owners: BTreeMap<&str, &External> = BTreeMap::new();
    for one in &all {
        if let Some(first) = owners.get(one.provider_id.as_str()) {
            draft.errors.push(duplicate(first, one));
        } else {
            owners.insert(&one.provider_id, one);
        }
        well_formed(draft, one);
        served(draft, one);
        overrides(draft, one);
    }
}

fn duplicate(first: &External, second: &External) -> FieldError {
    FieldError::new(
        second.path.field("providerId"),
        reason::INVALID,
        message![
            format!(
                "ERROR: Duplicate provider ID detected in external providers: {:?} is both {} (",
                second.provider_id, first.image
            ),
            &first.path,
            format!(") and {} (", second.image),
            &second.path,
            ")"
        ],
        "Give one of them another providerId.",
    )
}

fn well_formed(draft: &mut Draft<'_>, one: &External) {
    let id = &one.provider_id;
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if id.is_empty() || id.len() > ID_LIMIT || !id.chars().all(inner) || id.starts_with('-') || id.ends_with('-') {
        draft.refuse(
            one.path.field("providerId"),
            format!("{id:?} is not valid in the name of a container"),
            format!("Use up to {ID_LIMIT} lower-case letters, digits and dashes, without a dash at either end."),
        );
    }
    if one.image.is_empty() {
        draft.refuse(
            one.path.field("image"),
            "image must not be empty",
            "Set the field to the image that contains the provider.",
        );
    }
}

/// A server does not start with an entry of an API that it does not have.
fn served(draft: &mut Draft<'_>, one: &External) {
    let renamed = ["agents", "post_training"].contains(&one.api.as_str());
    if renamed && draft.server.since(0, 7) && !draft.serves(&one.api) {
        let message = format!(
            "the server of this distribution has no API {:?}, and would not start with a provider for it",
            one.api
        );
        draft.refuse(one.path.clone(), message, "Remove the provider, or use a distribution with an older server.");
    }
}

/// The external provider replaces the inline one only when the pod starts, so it is reported here.
fn overrides(draft: &mut Draft<'_>, one: &External) {
    if draft.ids(&one.api).iter().any(|known| known.id == one.provider_id) {
        draft.remark(
            one.path.field("providerId"),
            reason::OVERRIDDEN,
            format!(
                "external provider {:?} for API {:?} overrides inline provider with same ID",
                one.provider_id, one.section
            ),
            "Give it another providerId to keep both.",
        );
    }
}
