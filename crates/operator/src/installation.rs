//! Where and as what the operator is installed.

/// The namespace of the shipped manifests.
pub const NAMESPACE: &str = "steersman-system";

/// The name of the operator's own objects.
pub const NAME: &str = "steersman";

/// What all controllers know about the running operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    pub namespace: String,
    /// The operator's own image, for containers next to users' servers. None: not known.
    pub operator_image: Option<String>,
    /// The namespace of ConfigMaps with settings for all objects. None: the usual ones.
    pub config_namespace: Option<String>,
}

impl Default for Installation {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), operator_image: None, config_namespace: None }
    }
}

impl Installation {
    /// Where to look for such a ConfigMap, in this order; `former` is where users of an earlier operator have it.
    pub fn config_namespaces(&self, former: &str) -> Vec<String> {
        match &self.config_namespace {
            Some(given) => vec![given.clone()],
            None if self.namespace == former => vec![self.namespace.clone()],
            None => vec![self.namespace.clone(), former.to_owned()],
        }
    }
}
