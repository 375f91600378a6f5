//! CEL rules of the schema that admission also checks. Each error of admission refers to its rule, so that offline
//! commands, which check both, report it once.

pub const NAME_EXCLUDES_IMAGE: &str = "!(has(self.name) && has(self.image))";
pub const NAME_OR_IMAGE: &str = "has(self.name) || has(self.image)";
pub const PROVIDERS_EXCLUDE_OVERRIDE: &str = "!(has(self.providers) && has(self.overrideConfig))";
pub const RESOURCES_EXCLUDE_OVERRIDE: &str = "!(has(self.resources) && has(self.overrideConfig))";
pub const STORAGE_EXCLUDE_OVERRIDE: &str = "!(has(self.storage) && has(self.overrideConfig))";
pub const DISABLED_EXCLUDE_OVERRIDE: &str = "!(has(self.disabled) && has(self.overrideConfig))";
pub const REDIS_NEEDS_ENDPOINT: &str = "!has(self.type) || self.type != 'redis' || has(self.endpoint)";
pub const POSTGRES_NEEDS_CONNECTION_STRING: &str =
    "!has(self.type) || self.type != 'postgres' || has(self.connectionString)";
pub const TLS_NEEDS_SECRET: &str = "!has(self.enabled) || !self.enabled || has(self.secretName)";
