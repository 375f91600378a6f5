//! Checks one object as the API server and Steersman would, with field paths of the version that it is written in.

use std::collections::BTreeMap;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_api::{Family, crds};
use steersman_plan::dynamo::validate as requests;
use steersman_plan::llamastack::config::{Base, base};
use steersman_plan::llamastack::validate::{Facts, Missing, references, validate};
use steersman_plan::{Review, field_names};
use steersman_reconcile::{FieldError, FieldNames};

use crate::offline::schema::{SchemaError, Schemas};

#[derive(Default)]
pub struct CheckResult {
    /// Texts of the form `path: problem`.
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    /// Whether the object refers to Secrets or ConfigMaps, which are not checked.
    pub refers: bool,
    /// The object in the storage version, with its defaults. None: there are errors.
    pub stored: Option<Value>,
}

/// Checks one object. `base` is for objects that name an image.
pub fn check(
    schemas: &mut Schemas,
    family: Family,
    version: &str,
    object: &Value,
    base: Option<&Base>,
) -> anyhow::Result<CheckResult> {
    let mut checked = CheckResult::default();
    if !family.served_versions().contains(&version) {
        let known = family.served_versions().join(", ");
        checked.errors.push(format!("apiVersion: {} has no version {version}; use {known}", family.kind()));
        return Ok(checked);
    }
    if !crds::FAMILIES.contains(&family) {
        checked.warnings.push(format!(
            "this version of Steersman has no schema of kind {}, in any version: the object was not checked",
            family.kind()
        ));
        return Ok(checked);
    }
    checked.errors.extend(missing_name(object));
    let faults = schemas.structure(family, version, object)?;
    checked.errors.extend(faults.iter().map(SchemaError::to_string));
    // An object with a wrong structure cannot be decoded.
    if !faults.is_empty() {
        return Ok(checked);
    }
    let mut rules = schemas.rules(family, version, object)?;
    let mut stored = object.clone();
    schemas.fill(family, version, &mut stored)?;
    if version != family.storage_version() {
        match convert(stored, &format!("{}/{}", family.group(), family.storage_version())) {
            Ok(converted) => stored = converted.object,
            Err(error) => {
                checked.errors.push(error.to_string());
                return Ok(checked);
            }
        }
        schemas.fill(family, family.storage_version(), &mut stored)?;
    }
    let review = match family {
        Family::Llsd => llamastack(&stored, base, &mut checked),
        Family::Dgdr => dynamo(&stored),
        _ => Review::default(),
    };
    let names = field_names(family, version);
    checked.errors.extend(review.errors.iter().map(|error| error.text().render(&names)));
    checked.warnings.extend(review.warnings.iter().map(|warning| warning.render(&names)));
    if family == Family::Llsd && checked.errors.is_empty() && version != family.storage_version() {
        let mut faults = schemas.structure(family, family.storage_version(), &stored)?;
        if faults.is_empty() {
            faults = schemas.rules(family, family.storage_version(), &stored)?;
        }
        checked.errors.extend(faults.iter().map(|fault| format!("{}: {}", names.render(&fault.path), fault.message)));
    }
    // Errors of admission have the exact field and a remedy, and replace those of the same rule.
    rules.retain(|rule| !review.errors.iter().any(|error| is_same(rule, error, &names)));
    checked.errors.extend(rules.iter().map(SchemaError::to_string));
    checked.stored = checked.errors.is_empty().then_some(stored);
    Ok(checked)
}

/// Whether both are about the same schema rule, on the same object.
fn is_same(fault: &SchemaError, error: &FieldError, names: &FieldNames) -> bool {
    let inside = names.find(&error.path).is_some_and(|path| path.below(&fault.path).is_some());
    inside && error.schema_rule.is_some_and(|rule| fault.rule.as_deref() == Some(rule))
}

fn missing_name(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    match metadata["name"].as_str().filter(|name| !name.is_empty()) {
        // The schema reports a name that is not a string.
        None if metadata["generateName"].is_string() || !matches!(metadata["name"], Value::Null | Value::String(_)) => {
            None
        }
        None => Some("metadata.name: Required value: add it".to_owned()),
        Some(_) => None,
    }
}

fn llamastack(stored: &Value, base: Option<&Base>, checked: &mut CheckResult) -> Review {
    let name = stored["spec"]["distribution"]["name"].as_str().filter(|name| !name.is_empty());
    let known = name.and_then(base::distribution);
    let distributions: Vec<&str> = base::names().collect();
    let facts = Facts {
        namespace: stored["metadata"]["namespace"].as_str().unwrap_or_default(),
        distributions: &distributions,
        base: match name {
            Some(name) => base::base(name),
            None => base,
        },
        always_mounted: known.is_some_and(|known| known.mounts_always),
        config_namespace: None,
        // Without lookups no reference counts as missing.
        found: &BTreeMap::new(),
        missing: Missing::Refuse,
    };
    if let Ok(spec) = serde_json::from_value(stored["spec"].clone()) {
        checked.refers = !references(&spec, facts.namespace).is_empty();
    }
    validate(stored, None, &facts)
}

/// Validates as an operator without flags does.
fn dynamo(stored: &Value) -> Review {
    let image = requests::default_image(None, requests::DYNAMO_VERSION);
    let facts = requests::Facts { default_image: image.as_deref(), discovery: true };
    requests::validate(stored, None, &facts)
}
