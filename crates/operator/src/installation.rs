//! The namespace, names and image under which the operator is installed.

/// Namespace of the shipped manifests.
pub const NAMESPACE: &str = "steersman-system";

/// Name of the operator's own objects.
pub const NAME: &str = "steersman";

/// Facts about the running operator that all controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub namespace: String,
    /// The operator's own image, for containers next to users' servers. None: not known.
    pub operator_image: Option<String>,
    /// Namespace of ConfigMaps with settings for all objects. None: the operator's own, then that of an earlier operator.
    pub config_namespace: Option<String>,
}

impl Default for Installation {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), operator_image: None, config_namespace: None }
    }
}

impl Installation {
    /// The namespaces to search for a ConfigMap with settings, in this order; `former` is that of an earlier operator.
    pub fn config_namespaces(&self, former: &str) -> Vec<String> {
        match &self.config_namespace {
            Some(given) => vec![given.clone()],
            None if self.namespace == former => vec![self.namespace.clone()],
            None => vec![self.namespace.clone(), former.to_owned()],
        }
    }
}
