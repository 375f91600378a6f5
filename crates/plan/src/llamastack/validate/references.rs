//! The Secrets and ConfigMaps that a spec refers to, and which of them are missing.

use std::collections::{BTreeMap, BTreeSet};

use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{Cause, FieldPath, Segment, path};

use crate::llamastack::config::problem::reason;
use crate::llamastack::config::{FieldError, Input, Listen, Merge, check};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Secret,
    ConfigMap,
}

/// Identifies a referenced object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

/// Purpose of a reference; each has its own messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Value,
    Certificate,
    Config,
    CaBundle,
}

/// A reference of the spec to a Secret or a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub named: Named,
    /// Required keys.
    pub keys: Vec<String>,
    /// The field that holds the name.
    pub path: FieldPath,
    used: Use,
    /// The ConfigMap is in another namespace, where it needs a label that opens it to all.
    foreign: bool,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Absent,
    /// The keys of the object. None: only its existence was checked.
    There(Option<BTreeSet<String>>),
}

/// All references, in the order of the spec.
pub fn references(spec: &LlamaStackDistributionSpec, namespace: &str) -> Vec<Reference> {
    let named = |kind, name: &str| Named { kind, namespace: namespace.to_owned(), name: name.to_owned() };
    let input = Input { spec, base: None, merge: Merge::Overlay, operator_image: "" };
    let mut all: Vec<Reference> = check(&input)
        .secrets
        .into_iter()
        .map(|used| Reference {
            named: named(Kind::Secret, &used.secret),
            keys: vec![used.key],
            path: used.path.field("name"),
            used: Use::Value,
            foreign: false,
        })
        .collect();
    if let Some(secret) = Listen::of(spec).tls_secret {
        all.push(Reference {
            named: named(Kind::Secret, &secret),
            keys: vec!["tls.crt".to_owned(), "tls.key".to_owned()],
            path: path!(spec.networking.tls.secretName),
            used: Use::Certificate,
            foreign: false,
        });
    }
    let tls = spec.networking.as_ref().and_then(|networking| networking.tls.as_ref());
    if let Some(bundle) = tls.and_then(|tls| tls.ca_bundle.as_ref()).filter(|bundle| !bundle.config_map_name.is_empty())
    {
        let namespace = bundle.config_map_namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(namespace);
        let keys = bundle.config_map_keys.clone().filter(|keys| !keys.is_empty());
        all.push(Reference {
            named: Named {
                kind: Kind::ConfigMap,
                namespace: namespace.to_owned(),
                name: bundle.config_map_name.clone(),
            },
            keys: keys.unwrap_or_else(|| vec!["ca-bundle.crt".to_owned()]),
            path: path!(spec.networking.tls.caBundle.configMapName),
            used: Use::CaBundle,
            foreign: false,
        });
    }
    if let Some(config) = &spec.override_config {
        all.push(Reference {
            named: named(Kind::ConfigMap, &config.config_map_name),
            keys: vec!["config.yaml".to_owned()],
            path: path!(spec.overrideConfig.configMapName),
            used: Use::Config,
            foreign: false,
        });
    }
    all
}

/// A reference that was not looked up is not reported.
pub fn missing(references: &[Reference], found: &BTreeMap<Named, Found>) -> Vec<FieldError> {
    let mut problems = Vec::new();
    for reference in references {
        match found.get(&reference.named) {
            None | Some(Found::There(None)) => {}
            Some(Found::Absent) => problems.push(reference.absent()),
            Some(Found::There(Some(keys))) => {
                let missing = reference.keys.iter().filter(|key| !keys.contains(*key));
                problems.extend(missing.map(|key| reference.without(key)));
            }
        }
    }
    problems
}

impl Reference {
    /// Whether it is the server's configuration, which v1alpha1 can take from another namespace.
    pub fn is_config(&self) -> bool {
        self.used == Use::Config
    }

    /// Moves a reference to the server's configuration to this namespace. None: it stays in the object's own.
    #[must_use]
    pub fn with_config_namespace(mut self, namespace: Option<&str>) -> Self {
        if let Some(namespace) = namespace.filter(|namespace| self.is_config() && **namespace != self.named.namespace) {
            namespace.clone_into(&mut self.named.namespace);
            self.foreign = true;
        }
        self
    }

    fn absent(&self) -> FieldError {
        let Named { name, namespace, .. } = &self.named;
        let create = format!("Create it in namespace {namespace}, or name another.");
        let (reason, message, remedy) = match self.used {
            Use::Value | Use::Certificate => {
                (reason::NO_SECRET, format!("Secret {name:?} not found in namespace {namespace:?}"), create)
            }
            Use::Config => (
                reason::NO_CONFIG_MAP,
                format!("failed to find overrideConfig ConfigMap {name:?} in namespace {namespace:?}"),
                if self.foreign {
                    "Create it there with the label llamastack.io/watch=true, or name another.".to_owned()
                } else {
                    create
                },
            ),
            Use::CaBundle => (
                reason::NO_CONFIG_MAP,
                format!("failed to find caBundle ConfigMap {name:?} in namespace {namespace:?}"),
                format!("{create} One of another namespace is read only if it has the label llamastack.io/watch=true."),
            ),
        };
        FieldError::new(self.path.clone(), reason, message, remedy).with_cause(Cause::NotFound)
    }

    fn without(&self, key: &str) -> FieldError {
        let Named { name, namespace, .. } = &self.named;
        let (reason, message) = match self.used {
            Use::Value | Use::Certificate => {
                (reason::NO_SECRET_KEY, format!("Key {key:?} not found in Secret \"{name}/{namespace}\""))
            }
            Use::Config => {
                (reason::NO_CONFIG_MAP, format!("failed to read config from ConfigMap {name:?}: missing '{key}' key"))
            }
            Use::CaBundle => {
                (reason::NO_CONFIG_MAP, format!("failed to find CA bundle key '{key}' in ConfigMap {namespace}/{name}"))
            }
        };
        let path = match self.used {
            Use::Value => self.path.parent().field("key"),
            _ => self.path.clone(),
        };
        let remedy = format!("Add the key {key} to it, or name another.");
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
