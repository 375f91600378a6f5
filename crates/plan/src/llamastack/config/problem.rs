//! One thing that stands against a spec, or that its author should know.
//! Comes in: where it is, what is wrong and what to do; goes out: the same as a sentence or as a finding.

use steersman_reconcile::{Finding, Severity};

/// Words for `reason`. Those of errors are the reasons of the condition `ConfigGenerated`.
pub mod reason {
    pub const FAILED: &str = "ConfigGenerationFailed";
    pub const NO_BASE: &str = "BaseConfigRequired";
    pub const VERSION: &str = "UnsupportedConfigVersion";
    pub const NO_PROVIDER: &str = "MissingProviderForResource";
    pub const INVALID: &str = "SpecInvalid";
    pub const NO_SECRET: &str = "SecretNotFound";
    pub const NO_SECRET_KEY: &str = "SecretKeyMissing";
    pub const NO_CONFIG_MAP: &str = "ConfigMapNotFound";
    pub const IGNORED: &str = "FieldIgnored";
    pub const PRUNED: &str = "ReferencePruned";
    pub const OVERRIDDEN: &str = "ProviderOverridden";
    pub const READABLE: &str = "SecretReadable";
    pub const LABELS: &str = "ImageLabelsUnusable";
    pub const NEEDED: &str = "EnvironmentNeeded";
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// As in `spec.providers.inference[1].id`.
    pub path: String,
    /// One word in CamelCase, from `reason`.
    pub reason: &'static str,
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    pub fn new(
        path: impl Into<String>,
        reason: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), reason, message: message.into(), remedy: remedy.into() }
    }

    /// What is wrong and what to do, without the place: for whoever shows the place apart, as admission does.
    pub fn sentence(&self) -> String {
        steersman_reconcile::join_sentences(&self.message, &self.remedy)
    }

    /// The place and the sentence.
    pub fn text(&self) -> String {
        format!("{}: {}", self.path, self.sentence())
    }

    pub fn finding(&self, severity: Severity) -> Finding {
        let message = format!("{}: {}", self.path, self.message);
        Finding { severity, reason: self.reason, message, remedy: self.remedy.clone() }
    }
}

/// `a, b, c`, or words that say that there is none.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
