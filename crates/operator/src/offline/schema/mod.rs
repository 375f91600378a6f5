//! The CRDs' own schemas, without an API server.
//! Comes in: an object in one of its versions; goes out: what the API server would refuse in it, with the API server's
//! paths and leading words, or the object with the defaults that the API server would add.

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

/// One thing that the schema refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub path: FieldPath,
    /// What is wrong, and what to do. No value is quoted: it may be a secret in the wrong place.
    pub what: String,
    /// The CEL rule that does not hold. None: the structure is wrong.
    pub rule: Option<String>,
}

impl Fault {
    fn new(path: &FieldPath, what: impl Into<String>) -> Self {
        Self { path: path.clone(), what: what.into(), rule: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.what)
    }
}

/// Schemas by family and version. Making one takes longer than using it.
#[derive(Default)]
pub struct Schemas {
    known: BTreeMap<(Family, String), Value>,
}

impl Schemas {
    /// What does not fit the structure. The status is not looked at: the API server takes none from a manifest.
    pub fn structure(&mut self, family: Family, version: &str, object: &Value) -> anyhow::Result<Vec<Fault>> {
        Ok(structure::check(self.schema(family, version)?, object))
    }

    /// What the rules refuse in an object whose structure is right.
    pub fn rules(&mut self, family: Family, version: &str, object: &Value) -> anyhow::Result<Vec<Fault>> {
        Ok(rules::check(self.schema(family, version)?, object))
    }

    /// Adds the defaults of this version.
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
    use super::*;

    /// Were one of them beyond what is understood here, `validate` would accept what the API server refuses.
    #[test]
    fn every_rule_of_every_crd_is_understood() {
        fn rules(node: &Value, found: &mut Vec<String>) {
            match node {
                Value::Object(fields) => {
                    let own = fields.get("x-kubernetes-validations").and_then(Value::as_array);
                    found.extend(own.into_iter().flatten().filter_map(|one| one["rule"].as_str().map(str::to_owned)));
                    fields.values().for_each(|inner| rules(inner, found));
                }
                Value::Array(items) => items.iter().for_each(|inner| rules(inner, found)),
                _ => {}
            }
        }
        let mut schemas = Schemas::default();
        let mut found = Vec::new();
        for family in crds::FAMILIES {
            for version in family.served_versions() {
                rules(schemas.schema(family, version).unwrap(), &mut found);
            }
        }
        assert!(found.len() > 10, "{found:?}");
        for rule in found {
            assert!(rules::understood(&rule), "{rule}");
        }
    }

    #[test]
    fn every_pattern_of_every_crd_is_understood() {
        fn patterns(node: &Value, found: &mut Vec<String>) {
            match node {
                Value::Object(fields) => {
                    found.extend(fields.get("pattern").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|inner| patterns(inner, found));
                }
                Value::Array(items) => items.iter().for_each(|inner| patterns(inner, found)),
                _ => {}
            }
        }
        let mut schemas = Schemas::default();
        let mut found = Vec::new();
        for family in crds::FAMILIES {
            for version in family.served_versions() {
                patterns(schemas.schema(family, version).unwrap(), &mut found);
            }
        }
        assert!(found.len() > 10, "{found:?}");
        for pattern in found {
            assert!(regex::Regex::new(&pattern).is_ok(), "{pattern}");
        }
    }
}
