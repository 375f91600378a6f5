//! Providers that come as images of their own.
//! Comes in: images by API; goes out: what is wrong or surprising about them, and the list that the pod works through.

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

/// With `install-provider-` in front it is the name of a container.
const ID_LIMIT: usize = 63 - INSTALL.len();
pub const INSTALL: &str = "install-provider-";

/// One image, in the words in which it travels to the container that merges it into the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct External {
    pub provider_id: String,
    /// As in the file.
    pub api: String,
    /// As in the spec.
    pub section: String,
    pub image: String,
    pub pull_policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// Where it stands in the spec.
    pub path: FieldPath,
}

/// In the order in which they are installed.
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
        draft.errors.push(FieldError::new(
            one.path.field("providerId"),
            reason::INVALID,
            format!("{id:?} cannot be part of a container's name"),
            format!("Use up to {ID_LIMIT} lower-case letters, digits and dashes, not at the ends."),
        ));
    }
    if one.image.is_empty() {
        draft.errors.push(FieldError::new(
            one.path.field("image"),
            reason::INVALID,
            "image must not be empty",
            "Name the image that holds the provider.",
        ));
    }
}

/// An entry of an API that the server does not know stops it.
fn served(draft: &mut Draft<'_>, one: &External) {
    let renamed = ["agents", "post_training"].contains(&one.api.as_str());
    if renamed && draft.server.since(0, 7) && !draft.serves(&one.api) {
        draft.errors.push(FieldError::new(
            one.path.clone(),
            reason::INVALID,
            format!(
                "the server of this distribution has no API {}, and would not start with a provider for it",
                one.api
            ),
            "Remove the provider, or use a distribution with an older server.",
        ));
    }
}

/// It is put in its place when the pod starts; until then nobody would know.
fn overrides(draft: &mut Draft<'_>, one: &External) {
    if draft.ids(&one.api).iter().any(|known| known.id == one.provider_id) {
        draft.remarks.push(FieldError::new(
            one.path.field("providerId"),
            reason::OVERRIDDEN,
            format!(
                "external provider {:?} for API {:?} overrides inline provider with same ID",
                one.provider_id, one.section
            ),
            "Give it another providerId to keep both.",
        ));
    }
}
