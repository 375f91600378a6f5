//! One object, judged as the API server and Steersman's admission would.
//! Comes in: an object as it was written; goes out: errors and warnings with the paths of its version, and the object as it
//! would be stored.

use std::collections::BTreeMap;

use serde_json::Value;
use steersman_api::convert::convert;
use steersman_api::{Family, crds};
use steersman_plan::dynamo::validate as requests;
use steersman_plan::llamastack::config::{Base, base};
use steersman_plan::llamastack::names;
use steersman_plan::llamastack::validate::{Facts, Missing, references, validate};

use crate::offline::paths::in_v1alpha1;
use crate::offline::schema::{Fault, Schemas};
use crate::webhooks::dynamo::words;

#[derive(Default)]
pub struct Judged {
    /// `path: what`, each.
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    /// It names Secrets or ConfigMaps, which are not here.
    pub refers: bool,
    /// In the version that is stored, with its defaults. Only where there is no error.
    pub stored: Option<Value>,
}

/// `base`: for objects that name an image.
pub fn judge(
    schemas: &mut Schemas,
    family: Family,
    version: &str,
    object: &Value,
    base: Option<&Base>,
) -> anyhow::Result<Judged> {
    let mut judged = Judged::default();
    if !family.served_versions().contains(&version) {
        let known = family.served_versions().join(", ");
        judged.errors.push(format!("apiVersion: there is no version {version} of {}; use {known}", family.kind()));
        return Ok(judged);
    }
    if !crds::FAMILIES.contains(&family) {
        judged
            .warnings
            .push(format!("this version of Steersman has no schema for {}: nothing is checked", family.kind()));
        return Ok(judged);
    }
    judged.errors.extend(name(family, object));
    let faults = schemas.structure(family, version, object)?;
    judged.errors.extend(faults.iter().map(said));
    // What has a wrong structure cannot be read any further.
    if !faults.is_empty() {
        return Ok(judged);
    }
    let mut rules = schemas.rules(family, version, object)?;
    let mut stored = object.clone();
    schemas.fill(family, version, &mut stored)?;
    if version != family.storage_version() {
        match convert(stored, &format!("{}/{}", family.group(), family.storage_version())) {
            Ok(converted) => stored = converted.object,
            Err(error) => {
                judged.errors.push(error.to_string());
                return Ok(judged);
            }
        }
        schemas.fill(family, family.storage_version(), &mut stored)?;
    }
    match family {
        Family::Llsd => llamastack(schemas, version, &stored, base, &mut judged)?,
        Family::Dgdr => dynamo(version, &stored, &mut judged),
        _ => {}
    }
    // Where both object to the same thing, admission knows the exact place and a way out.
    let told =
        |rule: &Fault| judged.errors.iter().any(|error| error.to_lowercase().contains(&rule.what.to_lowercase()));
    rules.retain(|rule| !told(rule));
    judged.errors.extend(rules.iter().map(said));
    judged.stored = judged.errors.is_empty().then_some(stored);
    Ok(judged)
}

fn name(family: Family, object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    match metadata["name"].as_str().filter(|name| !name.is_empty()) {
        // What is there, but is no text, is the schema's to tell.
        None if metadata["generateName"].is_string() || !matches!(metadata["name"], Value::Null | Value::String(_)) => {
            None
        }
        None => Some("metadata.name: Required value: add it".to_owned()),
        Some(name) if family == Family::Llsd => {
            let refusal = names::refusal(name)?;
            Some(format!("metadata.name: {refusal}. Use a name of at most 48 characters, without dots."))
        }
        Some(_) => None,
    }
}

/// Admission judges what is stored, so its paths have to be brought back to the version that was written.
fn llamastack(
    schemas: &mut Schemas,
    written: &str,
    stored: &Value,
    base: Option<&Base>,
    judged: &mut Judged,
) -> anyhow::Result<()> {
    let family = Family::Llsd;
    let back = |message: &str| {
        if written == family.storage_version() { message.to_owned() } else { in_v1alpha1(message) }
    };
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
        // Nothing was looked up, so nothing is missing.
        found: &BTreeMap::new(),
        missing: Missing::Refuse,
    };
    let verdict = validate(stored, None, &facts);
    judged.errors.extend(verdict.errors.iter().map(|error| back(&error.text())));
    judged.warnings.extend(verdict.warnings.iter().map(|warning| back(warning)));
    if judged.errors.is_empty() && written != family.storage_version() {
        let mut faults = schemas.structure(family, family.storage_version(), stored)?;
        if faults.is_empty() {
            faults = schemas.rules(family, family.storage_version(), stored)?;
        }
        judged.errors.extend(faults.iter().map(|fault| back(&said(fault))));
    }
    if let Ok(spec) = serde_json::from_value(stored["spec"].clone()) {
        judged.refers = !references(&spec, facts.namespace).is_empty();
    }
    Ok(())
}

/// As an operator without flags does.
fn dynamo(written: &str, stored: &Value, judged: &mut Judged) {
    let image = requests::default_image(None, requests::DYNAMO_VERSION);
    let facts = requests::Facts { default_image: image.as_deref(), discovery: true };
    let verdict = requests::validate(stored, None, &facts);
    let back = |message: &str| words(message, written);
    judged.errors.extend(verdict.errors.iter().map(|error| back(&error.text())));
    judged.warnings.extend(verdict.warnings.iter().map(|warning| back(warning)));
}

fn said(fault: &Fault) -> String {
    format!("{}: {}", fault.path, fault.what)
}
