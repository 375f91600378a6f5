//! The format version of a `config.yaml`, and the version of the server that reads it.

use serde_json::Value;
use steersman_reconcile::{message, path};

use super::FieldError;
use super::problem::reason;

/// The current format version and the one before.
pub const SUPPORTED: [i64; 2] = [1, 2];

/// The version may be a number or, as older servers wrote it, a string.
pub fn detect(config: &Value) -> Result<i64, FieldError> {
    let given = config.get("version").filter(|version| !version.is_null()).ok_or_else(|| {
        FieldError::new(
            path!(spec.distribution),
            reason::FAILED,
            "config.yaml missing required 'version' field",
            message![
                "Use a distribution whose base configuration has a version, or set ",
                path!(spec.overrideConfig),
                "."
            ],
        )
    })?;
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e9).then_some(number as i64);
    let number = match given {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    match number {
        Some(number) if SUPPORTED.contains(&number) => Ok(number),
        Some(number) => Err(unsupported(&number.to_string())),
        None => Err(unsupported(&given.as_str().map_or_else(|| given.to_string(), ToOwned::to_owned))),
    }
}

fn unsupported(version: &str) -> FieldError {
    let list = SUPPORTED.map(|version| version.to_string()).join(", ");
    FieldError::new(
        path!(spec.distribution),
        reason::VERSION,
        format!("Unsupported config.yaml version {version}. Supported versions: {list}"),
        message![
            "Use a distribution of this release, or provide the whole configuration with ",
            path!(spec.overrideConfig),
            "."
        ],
    )
}

/// The version of a server. None: unknown.
pub(super) struct ServerVersion {
    known: Option<(u32, u32)>,
}

impl ServerVersion {
    pub fn of(text: &str) -> Self {
        let mut parts = text.trim().trim_start_matches('v').split('.').map(|part| part.parse().ok());
        Self { known: parts.next().flatten().zip(parts.next().flatten()) }
    }

    pub fn known(&self) -> bool {
        self.known.is_some()
    }

    /// False if the version is unknown: such a server counts as new.
    pub fn before(&self, major: u32, minor: u32) -> bool {
        self.known.is_some_and(|known| known < (major, minor))
    }

    /// False if the version is unknown.
    pub fn since(&self, major: u32, minor: u32) -> bool {
        self.known.is_some_and(|known| known >= (major, minor))
    }
}
