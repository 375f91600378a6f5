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
    pub const NEEDED: &str = "EnvironmentNeeded";
}

/// Most words of a list in a message: every field of a long spec may have such a message.
const MAX_LISTED: usize = 50;

/// Joins words as `a, b, c`, or returns `none`.
pub(super) fn list<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words = words.into_iter();
    let listed: Vec<&str> = words.by_ref().take(MAX_LISTED).collect();
    match (listed.is_empty(), words.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => listed.join(", "),
        (false, more) => format!("{} and {more} more", listed.join(", ")),
    }
}
