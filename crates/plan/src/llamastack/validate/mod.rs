//! Decides on admission of an object, by the rules of the plan.

mod references;
mod shape;
mod unread;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steersman_api::llamastack::convert::{OMITTED, preserved_bytes};
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::{DecodeError, decode, message, path};

use super::config::problem::reason;
use super::config::{ANNOTATION, Base, FieldError, Input, Merge, Source, check, check_without_file, source};

pub use references::{
    ALL_NAMESPACES, Reference, ReferenceKind, ReferenceState, ReferencedObject, SHARED_WITH_LABEL, is_shared_with,
    missing, referenced_by, references,
};
pub use unread::{unread, unread_problem};

/// Facts besides the object.
pub struct Facts<'a> {
    pub namespace: &'a str,
    /// Known distributions. Empty: unknown, so that all names are accepted.
    pub distributions: &'a [&'a str],
    /// Base of the object's distribution. None: unknown, and nothing is refused because of it.
    pub base: Option<&'a Base>,
    /// The distribution's configuration is mounted even if the spec changes nothing of it.
    pub always_mounted: bool,
    /// The namespace of the ConfigMap of `overrideConfig`, which only v1alpha1 can choose. None: the object's own.
    pub config_namespace: Option<&'a str>,
    /// The objects that were looked up for `references`.
    pub found: &'a BTreeMap<ReferencedObject, ReferenceState>,
    pub missing: Missing,
}

/// The effect of a reference to a missing object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    #[default]
    Refuse,
    Warn,
}

pub use crate::Review;

/// An error that the stored object has, too, is a warning. Deletion and changes that leave the spec alone, such as the
/// removal of a finalizer, are never refused.
pub fn validate(new: &Value, old: Option<&Value>, facts: &Facts<'_>) -> Review {
    let deleting = !new["metadata"]["deletionTimestamp"].is_null();
    if let Some(error) = omitted_fields(new).filter(|_| !deleting) {
        return Review { errors: vec![error], warnings: Vec::new() };
    }
    if deleting || old.is_some_and(|old| old["spec"] == new["spec"] && annotation(old) == annotation(new)) {
        return Review::default();
    }
    let checked_object = check_object(new, facts.base, facts);
    // The base of one distribution says nothing about another.
    let same_base = |old: &Value| facts.base.filter(|_| old["spec"]["distribution"] == new["spec"]["distribution"]);
    let before: BTreeSet<FieldError> =
        old.map(|old| check_object(old, same_base(old), facts).errors).into_iter().flatten().collect();
    let (old_errors, mut errors): (Vec<_>, Vec<_>) =
        checked_object.errors.into_iter().partition(|error| before.contains(error));
    let mut warnings: Vec<FieldError> = old_errors.into_iter().chain(checked_object.remarks).collect();
    let known = old.and_then(|old| spec_of(old).ok()).map(|old| references(&old, facts.namespace)).unwrap_or_default();
    let added = checked_object
        .references
        .into_iter()
        .filter(|new| !known.iter().any(|old| old.named == new.named && old.keys == new.keys))
        .map(|reference| reference.with_config_namespace(facts.config_namespace));
    let absent = missing(&added.collect::<Vec<_>>(), facts.found);
    match facts.missing {
        Missing::Refuse => errors.extend(absent),
        Missing::Warn => warnings.extend(absent),
    }
    Review { errors, warnings: warnings.iter().map(FieldError::text).collect() }
}

/// A client of v1alpha1 that writes such an object would remove the fields that it could not read.
fn omitted_fields(object: &Value) -> Option<FieldError> {
    object["metadata"]["annotations"].get(OMITTED)?;
    Some(FieldError::new(
        path!(metadata.annotations).key(OMITTED),
        reason::INVALID,
        "the object has fields of v1alpha2 that v1alpha1 cannot show, and storing it in this form would remove them",
        "Read and write it as llamastack.io/v1alpha2, without this annotation.",
    ))
}

/// Most bytes of the fields that only v1alpha2 has. In v1alpha1 they are in an annotation, and all annotations of an
/// object have at most 256 KiB; the rest is for the status and the user's own annotations.
pub const MAX_PRESERVED_BYTES: usize = 200_000;

fn too_large_for_v1alpha1(spec: &Value) -> Option<FieldError> {
    (preserved_bytes(spec) > MAX_PRESERVED_BYTES).then(|| {
        FieldError::new(
            path!(spec),
            reason::INVALID,
            format!(
                "the fields that only v1alpha2 has exceed {MAX_PRESERVED_BYTES} bytes of JSON, so that clients of \
                 v1alpha1 could not read the object"
            ),
            message![
                "Shorten ",
                path!(spec.providers),
                " and ",
                path!(spec.resources),
                ", or put the configuration into a ConfigMap and set ",
                path!(spec.overrideConfig),
                "."
            ],
        )
    })
}

/// FR-079d: rejects a distribution that is not `known`. The message lists the known names in alphabetical order.
pub fn unknown_distribution(spec: &LlamaStackDistributionSpec, known: &[&str]) -> Option<FieldError> {
    let name = spec.distribution.name.as_deref().filter(|name| !name.is_empty())?;
    if known.is_empty() || known.contains(&name) {
        return None;
    }
    let known: BTreeSet<&str> = known.iter().copied().collect();
    let list = known.into_iter().collect::<Vec<_>>().join(", ");
    Some(FieldError::new(
        path!(spec.distribution.name),
        reason::INVALID,
        format!("Unknown distribution {name:?}. Available distributions: {list}"),
        message!["Use one of them, or set ", path!(spec.distribution.image), "."],
    ))
}

#[derive(Default)]
struct CheckedObject {
    errors: Vec<FieldError>,
    remarks: Vec<FieldError>,
    references: Vec<Reference>,
}

fn check_object(object: &Value, base: Option<&Base>, facts: &Facts<'_>) -> CheckedObject {
    let spec = match spec_of(object) {
        Ok(spec) => spec,
        Err(errors) => return CheckedObject { errors, ..CheckedObject::default() },
    };
    let mut errors: Vec<FieldError> = unknown_distribution(&spec, facts.distributions).into_iter().collect();
    errors.extend(too_large_for_v1alpha1(&object["spec"]));
    let merge = Merge::parse(annotation(object)).unwrap_or_else(|problem| {
        errors.push(problem);
        Merge::default()
    });
    let checked = match source(&spec, facts.always_mounted) {
        Source::Generated => check(&Input { spec: &spec, base, merge, operator_image: "" }),
        Source::Override | Source::Distribution => check_without_file(&spec),
    };
    errors.extend(checked.errors);
    let unread = unread(&object["spec"], &spec).into_iter().map(unread_problem);
    let remarks = checked.remarks.into_iter().chain(unread).collect();
    CheckedObject { errors, remarks, references: references(&spec, facts.namespace) }
}

/// Reports the path even for forms that the schema does not check.
fn spec_of(object: &Value) -> Result<LlamaStackDistributionSpec, Vec<FieldError>> {
    let spec = &object["spec"];
    let wrong = shape::check(spec);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    decode(spec, "spec").map_err(|DecodeError { path, cause }| {
        let remedy = "See `kubectl explain llsd.spec --recursive` for the type of each field.";
        vec![FieldError::new(path, reason::INVALID, format!("cannot be decoded: {cause}"), remedy)]
    })
}

fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION].as_str()
}
