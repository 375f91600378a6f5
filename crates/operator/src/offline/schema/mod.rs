//! Checks and defaults objects by the schemas of the CRDs, with the paths and leading words of the API server.

mod defaults;
mod rules;
mod structure;
mod value;

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use serde_json::Value;
use steersman_api::Family;
use steersman_api::crds::{self, Options};
use steersman_reconcile::FieldPath;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    pub path: FieldPath,
    /// Problem and remedy. No value is quoted: it may be a secret in the wrong field.
    pub message: String,
    /// The CEL rule that does not hold. None: the structure is wrong.
    pub rule: Option<String>,
}

impl SchemaError {
    fn new(path: &FieldPath, message: impl Into<String>) -> Self {
        Self { path: path.clone(), message: message.into(), rule: None }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.message)
    }
}

/// Cache of schemas: building one takes longer than using it.
#[derive(Default)]
pub struct Schemas {
    known: BTreeMap<(Family, String), Value>,
}

impl Schemas {
    /// Faults of the structure. The status is ignored, as the API server ignores it in a manifest.
    pub fn structure(&mut self, family: Family, version: &str, object: &Value) -> anyhow::Result<Vec<SchemaError>> {
        Ok(structure::check(self.schema(family, version)?, object))
    }

    /// Faults by CEL rules of an object whose structure is right.
    pub fn rules(&mut self, family: Family, version: &str, object: &Value) -> anyhow::Result<Vec<SchemaError>> {
        Ok(rules::check(self.schema(family, version)?, object))
    }

    pub fn fill(&mut self, family: Family, version: &str, object: &mut Value) -> anyhow::Result<()> {
        let schema = self.schema(family, version)?;
        if let (Some(spec), Some(given)) = (schema.pointer("/properties/spec"), object.get_mut("spec")) {
            defaults::fill(spec, given);
        }
        Ok(())
    }

    fn schema(&mut self, family: Family, version: &str) -> anyhow::Result<&Value> {
        let key = (family, version.to_owned());
        if !self.known.contains_key(&key) {
            let mut crd = crds::manifest(&crds::crd(family, &Options::default())?)?;
            let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
            for one in versions.into_iter().flatten() {
                let name = one["name"].as_str().unwrap_or_default().to_owned();
                let schema = one.pointer_mut("/schema/openAPIV3Schema").map(Value::take).unwrap_or_default();
                self.known.insert((family, name), schema);
            }
        }
        self.known.get(&key).with_context(|| format!("{} has no version {version}", family.kind()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// Calls `visit` on every object in the schemas of all CRDs.
    fn visit_schemas(visit: &mut dyn FnMut(&Map<String, Value>)) {
        fn walk(node: &Value, visit: &mut dyn FnMut(&Map<String, Value>)) {
            match node {
                Value::Object(fields) => {
                    visit(fields);
                    fields.values().for_each(|inner| walk(inner, visit));
                }
                Value::Array(items) => items.iter().for_each(|inner| walk(inner, visit)),
                _ => {}
            }
        }
        let mut schemas = Schemas::default();
        for family in crds::FAMILIES {
            for version in family.served_versions() {
                walk(schemas.schema(family, version).unwrap(), visit);
            }
        }
    }

    /// `validate` passes over a rule that is not understood, and would accept an object that the API server refuses.
    #[test]
    fn every_rule_of_every_crd_is_understood() {
        let mut count = 0;
        visit_schemas(&mut |fields| {
            for rule in fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
                let Some(text) = rule["rule"].as_str() else { continue };
                assert!(rules::understood(text), "{text}");
                count += 1;
            }
        });
        assert!(count > 10, "{count}");
    }

    #[test]
    fn every_pattern_of_every_crd_is_understood() {
        let mut count = 0;
        visit_schemas(&mut |fields| {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
                assert!(regex::Regex::new(pattern).is_ok(), "{pattern}");
                count += 1;
            }
        });
        assert!(count > 10, "{count}");
    }
}
