//! Reasons of the field errors of this family.

/// Values of `FieldError::reason`. Of these, the condition `ConfigGenerated` has only `BaseConfigRequired`,
/// `UnsupportedConfigVersion` and `MissingProviderForResource`; all other errors have a common reason there.
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
    pub const DEFAULTED: &str = "ProviderOfBase";
    pub const NEEDED: &str = "EnvironmentNeeded";
}

/// Joins words as `a, b, c`, or returns `none`.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.into_iter().collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
