//! Renders the configuration as text: the same content yields the same bytes.

use serde_json::Value;
use steersman_reconcile::path;

use super::FieldError;
use super::problem::reason;
use crate::content_hash::{self, sorted};
use crate::yaml::Budget;

/// Sorts keys at every level; lists keep their order. Strings that YAML 1.1 would read as another type are quoted,
/// because the server's parser is one of YAML 1.1.
pub fn yaml(config: &Value) -> Result<String, FieldError> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false, yaml_12: false };
    serde_saphyr::to_string_with_options(&sorted(config), options).map_err(|error| {
        FieldError::new(
            path!(spec),
            reason::FAILED,
            format!("config.yaml cannot be serialized: {error}"),
            "This is a defect of the operator; report it with the spec of the object.",
        )
    })
}

/// Parses YAML of the user. The error names the position and quotes nothing of the text.
pub fn read(text: &str) -> Result<Value, String> {
    Budget::default().parse(text).map_err(|error| error.without_content("not valid YAML"))
}

/// Value of `status.resolvedDistribution.configHash`: independent of the layout of the file.
pub fn hash_of_base(config: &Value) -> String {
    format!("sha256:{}", content_hash::hex(&sorted(config).to_string()))
}
