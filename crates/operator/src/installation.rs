//! The namespace, names and image under which the operator is installed.

use std::collections::BTreeMap;

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

/// Facts about the running operator that all controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub namespace: String,
    /// The operator's own image, for containers next to users' servers. None: not known.
    pub operator_image: Option<String>,
    /// Namespace of ConfigMaps with settings for all objects. None: the operator's own.
    pub config_namespace: Option<String>,
}

impl Default for Installation {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), operator_image: None, config_namespace: None }
    }
}

impl Installation {
    /// The namespace of ConfigMaps with settings for all objects. No other namespace counts because of its name: whoever may
    /// create a namespace must not configure the operator.
    pub fn config_namespace(&self) -> &str {
        self.config_namespace.as_deref().unwrap_or(&self.namespace)
    }
}
