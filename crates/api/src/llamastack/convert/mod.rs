//! Converts LlamaStackDistributions between v1alpha1 and v1alpha2, as JSON.
//!
//! Fields that the other version does not have are preserved in annotations, and restored unless they contradict a
//! later change.

mod annotations;
mod fields;
mod legacy;
mod transfer;

use std::mem;

use serde_json::Value;

pub use self::annotations::OMITTED;
use self::annotations::{PreservedFields, annotation_for, annotation_path};
pub use self::fields::shared_fields;
use self::fields::{LlsdVersion, V1ALPHA2_STATUS_FIELDS};
use self::transfer::{Fields, paths, remove_derived, restore, transfer};
use crate::Family;
use crate::convert::{ConvertError, Converted};

/// Converts an object of the other version to `to`, one of the served versions.
pub fn convert(object: Value, to: &'static str) -> Result<Converted, ConvertError> {
    let Value::Object(mut object) = object else { return Err(ConvertError::NotAnObject) };
    let version = if to == LlsdVersion::V1alpha1.name() { LlsdVersion::V1alpha1 } else { LlsdVersion::V1alpha2 };
    let from = version.other();
    object.insert("apiVersion".to_owned(), format!("{}/{to}", Family::Llsd.group()).into());

    let mut lost = Vec::new();
    let (mut preserved, legacy) = annotations::take(object.get_mut("metadata"), version, &mut lost);
    let mut rest = PreservedFields::default();
    let (mut not_restored, mut without_section) = (Vec::new(), Vec::new());
    let mut unknown = Vec::new();

    let legacy = match version {
        LlsdVersion::V1alpha1 => legacy,
        LlsdVersion::V1alpha2 => {
            legacy::add_to_preserved(legacy, &mut preserved.spec, &mut unknown);
            legacy::LegacyFields::default()
        }
    };
    // A preserved field does not create a spec: it would be the only field in it.
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        let source = mem::take(spec);
        rest.spec = transfer(from, source, spec);
        restore(version, preserved.spec, spec, &mut not_restored);
        legacy::add_to_spec(legacy, spec, &mut unknown);
        remove_derived(from, &mut rest.spec, spec);
    } else {
        without_section.extend(paths(version, preserved.spec).map(|path| (path, "spec")));
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        rest.status = V1ALPHA2_STATUS_FIELDS.iter().filter_map(|name| status.remove_entry(*name)).collect();
        restore_status(preserved.status, status, &mut not_restored);
    } else {
        let paths = preserved.status.keys().map(|name| format!("status.{name}"));
        without_section.extend(paths.map(|path| (path, "status")));
    }

    let source_of = |path: &str| annotation_path(&annotation_for(version, path));
    lost.extend(not_restored.iter().map(|path| {
        let version = from.name();
        format!("{}: {path} was not restored, because fields of {version} have changed since", source_of(path))
    }));
    lost.extend(without_section.iter().map(|(path, section)| {
        format!("{}: {path} was not restored, because the object has no {section}", source_of(path))
    }));
    lost.extend(unknown.iter().map(|(annotation, name)| {
        format!("{}: {name} was not restored, because there is no such field", annotation_path(annotation))
    }));
    if !rest.is_empty()
        && let Err((rest, problem)) = annotations::store(object.get_mut("metadata"), from, rest, &mut lost)
    {
        let status = rest.status.keys().map(|name| format!("status.{name}"));
        let paths = paths(from, rest.spec).chain(status);
        lost.extend(paths.map(|path| format!("{path}: {to} has no field for this value, and {problem}")));
    }
    Ok(Converted { object: Value::Object(object), lost })
}

/// Bytes of the fields of a v1alpha2 spec that v1alpha1 does not have, as conversion stores them in an annotation.
pub fn preserved_bytes(spec: &Value) -> usize {
    let Value::Object(spec) = spec else { return 0 };
    let rest = transfer(LlsdVersion::V1alpha2, spec.clone(), &mut Fields::new());
    Value::Object(rest).to_string().len()
}

fn restore_status(preserved: Fields, status: &mut Fields, not_restored: &mut Vec<String>) {
    for (name, value) in preserved {
        if V1ALPHA2_STATUS_FIELDS.contains(&&*name) && !status.contains_key(&name) {
            status.insert(name, value);
        } else {
            not_restored.push(format!("status.{name}"));
        }
    }
}
