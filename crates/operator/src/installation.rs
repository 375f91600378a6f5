//! The namespace, names and image under which the operator is installed, and its access to Secrets.

use std::collections::BTreeMap;

use clap::ValueEnum;
use steersman_runtime::rbac::Rule;

/// Namespace of the shipped manifests.
pub const NAMESPACE: &str = "steersman-system";

/// Name of the operator's own objects.
pub const NAME: &str = "steersman";

/// Labels of the operator's own objects and pods.
pub fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), NAME.to_owned())])
}

/// Default ports of the operator's servers.
pub const WEBHOOK_PORT: u16 = 9443;
pub const HEALTH_PORT: u16 = 8081;
pub const METRICS_PORT: u16 = 8080;

/// What the operator may do with Secrets of users' namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum SecretAccess {
    /// Nothing: references to Secrets are not checked, and images that need credentials have no labels
    None,
    /// Read the Secrets that objects name. A missing one is read again every 15 s
    #[default]
    Get,
    /// Watch the metadata of all Secrets as well, so that a change has effect at once. RBAC permits this only together with
    /// their values
    Watch,
}

impl SecretAccess {
    /// The value of the flag `--secrets`.
    pub fn flag_value(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Get => "get",
            Self::Watch => "watch",
        }
    }
}

/// Rules about Secrets of users' namespaces.
#[derive(Clone, Debug, Default)]
pub struct SecretRules {
    /// Needed for [`SecretAccess::Get`] and [`SecretAccess::Watch`].
    pub get: Vec<Rule>,
    /// Needed in addition for [`SecretAccess::Watch`].
    pub watch: Vec<Rule>,
}

/// Facts about the running operator that all controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub namespace: String,
    /// The operator's own image, for containers next to users' servers. None: not known.
    pub operator_image: Option<String>,
    /// Namespace of ConfigMaps with settings for all objects. None: the operator's own.
    pub config_namespace: Option<String>,
    pub secrets: SecretAccess,
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            namespace: NAMESPACE.to_owned(),
            operator_image: None,
            config_namespace: None,
            secrets: SecretAccess::default(),
        }
    }
}

impl Installation {
    /// The namespace of ConfigMaps with settings for all objects. No other namespace counts because of its name: whoever may
    /// create a namespace must not configure the operator.
    pub fn config_namespace(&self) -> &str {
        self.config_namespace.as_deref().unwrap_or(&self.namespace)
    }
}
