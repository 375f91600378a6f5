//! Converts LlamaStackDistributions between v1alpha1 and v1alpha2, as JSON.
//!
//! Fields that the other version does not have are kept in annotations, and return unless they contradict a later change.

mod carry;
mod fields;
mod kept;
mod legacy;

use std::mem;

use serde_json::Value;

use self::carry::{Fields, carry, paths, restore, settle};
pub use self::fields::shared_fields;
use self::fields::{STATUS, Version};
use self::kept::Kept;
use crate::Family;
use crate::convert::{ConvertError, Converted};

/// Converts an object of the other version to `to`, one of the served versions.
pub fn convert(object: Value, to: &'static str) -> Result<Converted, ConvertError> {
    let Value::Object(mut object) = object else { return Err(ConvertError::NotAnObject) };
    let version = if to == Version::V1alpha1.name() { Version::V1alpha1 } else { Version::V1alpha2 };
    let from = version.other();
    object.insert("apiVersion".to_owned(), format!("{}/{to}", Family::Llsd.group()).into());

    let mut lost = Vec::new();
    let (mut back, legacy) = kept::take(object.get_mut("metadata"), version, &mut lost);
    let mut rest = Kept::default();
    let (mut dropped, mut homeless) = (Vec::new(), Vec::new());
    let mut unknown = Vec::new();

    let legacy = match version {
        Version::V1alpha1 => legacy,
        Version::V1alpha2 => {
            legacy::into_kept(legacy, &mut back.spec, &mut unknown);
            legacy::Legacy::default()
        }
    };
    // A kept field does not create a spec: it would be the only field in it.
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        let given = mem::take(spec);
        rest.spec = carry(from, given, spec);
        restore(version, back.spec, spec, &mut dropped);
        legacy::into_spec(legacy, spec, &mut unknown);
        settle(from, &mut rest.spec, spec);
    } else {
        homeless.extend(paths(version, back.spec));
    }
    if let Some(Value::Object(status)) = object.get_mut("status") {
        rest.status = STATUS.iter().filter_map(|name| status.remove_entry(*name)).collect();
        restore_status(back.status, status, &mut dropped);
    } else {
        homeless.extend(back.status.keys().map(|name| format!("status.{name}")));
    }

    let place = |path: &str| kept::place(&kept::annotation_of(version, path));
    lost.extend(dropped.iter().map(|path| {
        let why = format!("the fields of {} say otherwise now", from.name());
        format!("{}: its {path} was dropped, because {why}", place(path))
    }));
    lost.extend(
        homeless
            .iter()
            .map(|path| format!("{}: its {path} was dropped, because the object has no such part", place(path))),
    );
    lost.extend(unknown.iter().map(|(annotation, name)| {
        format!("{}: its {name} was dropped, because no field has this name", kept::place(annotation))
    }));
    if !rest.is_empty()
        && let Err((rest, why)) = kept::put(object.get_mut("metadata"), from, rest, &mut lost)
    {
        let status = rest.status.keys().map(|name| format!("status.{name}"));
        lost.extend(
            paths(from, rest.spec).chain(status).map(|path| format!("{path}: {to} cannot say this, and {why}")),
        );
    }
    Ok(Converted { object: Value::Object(object), lost })
}

fn restore_status(kept: Fields, status: &mut Fields, dropped: &mut Vec<String>) {
    for (name, value) in kept {
        if STATUS.contains(&&*name) && !status.contains_key(&name) {
            status.insert(name, value);
        } else {
            dropped.push(format!("status.{name}"));
        }
    }
}
