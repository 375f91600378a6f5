//! The Secrets and ConfigMaps that a spec refers to, and which of them are missing.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{Cause, FieldPath, Segment, path};

use crate::llamastack::build::ca;
use crate::llamastack::config::problem::reason;
use crate::llamastack::config::{FieldError, Input, Merge, check};
use crate::llamastack::fields;

/// Label by which the owner of a ConfigMap lets objects of other namespaces use it: names of namespaces, separated by `_`, or
/// [`ALL_NAMESPACES`]. The operator sets it on nothing, so that it always is the owner's consent.
pub const SHARED_WITH_LABEL: &str = "steersman.dev/shared-with";

/// Not the name of a namespace, because it has a capital letter.
pub const ALL_NAMESPACES: &str = "All";

/// Whether the label of a ConfigMap lets objects of the namespace use it.
pub fn is_shared_with(labels: &BTreeMap<String, String>, namespace: &str) -> bool {
    let Some(value) = labels.get(SHARED_WITH_LABEL) else { return false };
    value == ALL_NAMESPACES || value.split('_').any(|name| name == namespace)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceKind {
    Secret,
    ConfigMap,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReferencedObject {
    pub kind: ReferenceKind,
    pub namespace: String,
    pub name: String,
}

/// Purpose of a reference; each has its own messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Value,
    Certificate,
    Config,
    CaBundle,
}

/// A reference of the spec to a Secret or a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub named: ReferencedObject,
    pub keys: Vec<String>,
    /// The field that holds the name.
    pub path: FieldPath,
    purpose: Purpose,
    /// The namespace of the object if it is another one: the ConfigMap needs the label for it.
    shared_with: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceState {
    Missing,
    /// The keys of the object. None: only its existence was checked.
    Exists(Option<BTreeSet<String>>),
}

/// All references, in the order of the spec.
pub fn references(spec: &LlamaStackDistributionSpec, namespace: &str) -> Vec<Reference> {
    let secrets = check(&Input { spec, base: None, merge: Merge::Overlay, operator_image: "" }).secrets;
    let mut all: Vec<Reference> = secrets
        .into_iter()
        .map(|used| Reference::new(Purpose::Value, namespace, &used.secret, vec![used.key], used.path.field("name")))
        .collect();
    if let Some(secret) = fields::certificate(spec) {
        let keys = vec!["tls.crt".to_owned(), "tls.key".to_owned()];
        all.push(Reference::new(Purpose::Certificate, namespace, secret, keys, path!(spec.networking.tls.secretName)));
    }
    if let Some(bundle) = ca::reference(spec) {
        let path = path!(spec.networking.tls.caBundle.configMapName);
        let reference = Reference::new(Purpose::CaBundle, namespace, &bundle.config_map_name, ca::keys(bundle), path);
        all.push(reference.in_namespace(bundle.config_map_namespace.as_deref()));
    }
    if let Some(config) = &spec.override_config {
        let keys = vec!["config.yaml".to_owned()];
        let path = path!(spec.overrideConfig.configMapName);
        all.push(Reference::new(Purpose::Config, namespace, &config.config_map_name, keys, path));
    }
    all
}

/// A reference that was not looked up is not reported.
pub fn missing(references: &[Reference], found: &BTreeMap<ReferencedObject, ReferenceState>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for reference in references {
        match found.get(&reference.named) {
            None | Some(ReferenceState::Exists(None)) => {}
            Some(ReferenceState::Missing) => problems.push(reference.absent()),
            Some(ReferenceState::Exists(Some(keys))) => {
                let missing = reference.keys.iter().filter(|key| !keys.contains(*key));
                problems.extend(missing.map(|key| reference.without(key)));
            }
        }
    }
    problems
}

impl Reference {
    fn new(purpose: Purpose, namespace: &str, name: &str, keys: Vec<String>, path: FieldPath) -> Self {
        let kind = match purpose {
            Purpose::Value | Purpose::Certificate => ReferenceKind::Secret,
            Purpose::Config | Purpose::CaBundle => ReferenceKind::ConfigMap,
        };
        let named = ReferencedObject { kind, namespace: namespace.to_owned(), name: name.to_owned() };
        Self { named, keys, path, purpose, shared_with: None }
    }

    /// Whether it is the server's configuration, which v1alpha1 can take from another namespace.
    pub fn is_config(&self) -> bool {
        self.purpose == Purpose::Config
    }

    /// Moves a reference to the server's configuration to this namespace. None: it stays in the object's own.
    #[must_use]
    pub fn with_config_namespace(self, namespace: Option<&str>) -> Self {
        if self.is_config() { self.in_namespace(namespace) } else { self }
    }

    /// Moves the reference from the object's own namespace to this one, if there is one.
    fn in_namespace(mut self, namespace: Option<&str>) -> Self {
        let other = |namespace: &&str| !namespace.is_empty() && **namespace != self.named.namespace;
        if let Some(namespace) = namespace.filter(other) {
            self.shared_with = Some(mem::replace(&mut self.named.namespace, namespace.to_owned()));
        }
        self
    }

    fn absent(&self) -> FieldError {
        let ReferencedObject { name, namespace, .. } = &self.named;
        let create = match &self.shared_with {
            None => format!("Create it in namespace {namespace}, or reference another one."),
            Some(object) => format!(
                "Create it in namespace {namespace} with the label {SHARED_WITH_LABEL}={object}, by which its owner lets \
                 objects of namespace {object} use it, or reference another one."
            ),
        };
        let (reason, message, remedy) = match self.purpose {
            Purpose::Value | Purpose::Certificate => {
                (reason::NO_SECRET, format!("Secret {name:?} not found in namespace {namespace:?}"), create)
            }
            Purpose::Config => (
                reason::NO_CONFIG_MAP,
                format!("failed to find overrideConfig ConfigMap {name:?} in namespace {namespace:?}"),
                create,
            ),
            Purpose::CaBundle => (
                reason::NO_CONFIG_MAP,
                format!("failed to find caBundle ConfigMap {name:?} in namespace {namespace:?}"),
                create,
            ),
        };
        FieldError::new(self.path.clone(), reason, message, remedy).with_cause(Cause::NotFound)
    }

    fn without(&self, key: &str) -> FieldError {
        let ReferencedObject { name, namespace, .. } = &self.named;
        let (reason, message) = match self.purpose {
            Purpose::Value | Purpose::Certificate => {
                (reason::NO_SECRET_KEY, format!("Key {key:?} not found in Secret \"{name}/{namespace}\""))
            }
            Purpose::Config => {
                (reason::NO_CONFIG_MAP, format!("failed to read config from ConfigMap {name:?}: missing '{key}' key"))
            }
            Purpose::CaBundle => {
                (reason::NO_CONFIG_MAP, format!("failed to find CA bundle key '{key}' in ConfigMap {namespace}/{name}"))
            }
        };
        let path = match self.purpose {
            Purpose::Value => self.path.parent().field("key"),
            _ => self.path.clone(),
        };
        let remedy = format!("Add the key {key} to it, or use another one.");
        FieldError::new(path, reason, message, remedy).with_cause(Cause::NotFound)
    }
}

/// The text of the condition `SecretsResolved`.
pub fn referenced_by(problem: &FieldError) -> String {
    let last = problem.path.segments().last();
    let inside = ["name", "key"].iter().any(|field| last == Some(&Segment::Field((*field).into())));
    let place = if inside { problem.path.parent() } else { problem.path.clone() };
    format!("{}. Referenced by: {place}", problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_config_map_names_its_users() {
        let shared = |value: &str| is_shared_with(&[(SHARED_WITH_LABEL.to_owned(), value.to_owned())].into(), "team-a");
        for (value, expected) in [
            ("All", true),
            ("team-a", true),
            ("team-b_team-a", true),
            ("team-b", false),
            ("team", false),
            ("all", false),
            ("true", false),
            ("", false),
        ] {
            assert_eq!(shared(value), expected, "{value:?}");
        }
        assert!(!is_shared_with(&[("llamastack.io/watch".to_owned(), "true".to_owned())].into(), "team-a"));
    }
}
