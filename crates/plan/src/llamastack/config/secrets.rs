//! Passes secret values through environment variables of the container, never through the file.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use steersman_api::llamastack::v1alpha2::{SecretKey, SecretRef};
use steersman_reconcile::{FieldPath, message};

use super::problem::reason;
use super::{FieldError, ids};

/// A key of a Secret that the server receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretUse {
    pub secret: String,
    pub key: String,
    pub variable: String,
    /// Path of `name` and `key`, as in `spec.providers.inference.apiKey.secretKeyRef`.
    pub path: FieldPath,
}

#[derive(Default)]
pub(super) struct Secrets {
    pub uses: Vec<SecretUse>,
}

impl Secrets {
    /// Returns the placeholder for the file. Two ids can yield the same variable name, which would mix up their values.
    pub fn add(&mut self, variable: String, key: &SecretKey, path: FieldPath) -> Result<String, FieldError> {
        let placeholder = ids::placeholder(&variable);
        let new = SecretUse { secret: key.name.clone(), key: key.key.clone(), variable, path };
        let collides =
            |known: &&SecretUse| known.variable == new.variable && (known.secret != new.secret || known.key != new.key);
        if let Some(known) = self.uses.iter().find(collides) {
            let message = format!(
                "failed to validate env var name collision for {:?}: {}/{} conflicts with {}/{}",
                new.variable, known.secret, known.key, new.secret, new.key
            );
            let give = "Both keys (Secret/key) would set this environment variable. Give one of the providers another \
                        id, or use the same key for both; the other reference is ";
            return Err(FieldError::new(new.path, reason::FAILED, message, message![give, &known.path, "."]));
        }
        // Every use is recorded, even of a known variable, so that a missing Secret is reported at each place.
        self.uses.push(new);
        Ok(placeholder)
    }

    /// Unique by name, in the order in which they were added.
    pub fn env(&self) -> Vec<EnvVar> {
        let mut known = BTreeSet::new();
        self.uses.iter().filter(|used| known.insert(&used.variable)).map(SecretUse::env).collect()
    }
}

impl SecretUse {
    pub fn env(&self) -> EnvVar {
        let selector = SecretKeySelector { name: self.secret.clone(), key: self.key.clone(), optional: None };
        EnvVar {
            name: self.variable.clone(),
            value: None,
            value_from: Some(EnvVarSource { secret_key_ref: Some(selector), ..Default::default() }),
        }
    }
}

/// Path of `name` and `key` of a reference.
pub(super) fn path(at: &FieldPath, reference: &SecretRef) -> FieldPath {
    match reference {
        SecretRef::Nested { .. } => at.field("secretKeyRef"),
        SecretRef::Flat(_) => at.clone(),
    }
}
