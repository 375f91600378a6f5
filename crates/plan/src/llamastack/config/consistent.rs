//! Checks a spec independently of its base. Repeats the rules of the schema for objects that were stored before them.

use steersman_api::llamastack::v1alpha2::{ExposeForm, LlamaStackDistributionSpec, rules};
use steersman_reconcile::{FieldPath, message, path};

use super::problem::reason;
use super::{FieldError, providers};

pub fn errors(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let given = |value: &Option<String>| value.as_deref().is_some_and(|value| !value.is_empty());
    let error = |path: FieldPath, message: &str, remedy: &str, rule: &'static str| {
        FieldError::new(path, reason::INVALID, message, remedy).with_schema_rule(rule)
    };
    let mut errors = Vec::new();
    match (given(&spec.distribution.name), given(&spec.distribution.image)) {
        (true, true) => errors.push(error(
            path!(spec.distribution),
            "only one of name or image can be specified",
            "Remove the name or the image.",
            rules::NAME_EXCLUDES_IMAGE,
        )),
        (false, false) => errors.push(error(
            path!(spec.distribution),
            "one of name or image must be specified",
            "Set name to a known distribution, or image to any image.",
            rules::NAME_OR_IMAGE,
        )),
        _ => {}
    }
    let sections = [
        ("providers", spec.providers.is_some(), rules::PROVIDERS_EXCLUDE_OVERRIDE),
        ("resources", spec.resources.is_some(), rules::RESOURCES_EXCLUDE_OVERRIDE),
        ("storage", spec.storage.is_some(), rules::STORAGE_EXCLUDE_OVERRIDE),
        ("disabled", spec.disabled.is_some(), rules::DISABLED_EXCLUDE_OVERRIDE),
    ];
    for (section, _, rule) in sections.into_iter().filter(|(_, there, _)| *there && spec.override_config.is_some()) {
        let message = format!("{section} and overrideConfig are mutually exclusive");
        let remedy = "Remove one of them. The ConfigMap of overrideConfig is used unchanged.";
        errors.push(error(path!(spec).field(section), &message, remedy, rule));
    }
    let networking = spec.networking.as_ref();
    // The plan reads a port of 0 as unset; it is refused all the same.
    if let Some(port) = networking.and_then(|networking| networking.port).filter(|port| !(1..=65_535).contains(port)) {
        let remedy = "Use a number from 1024 to 65535, or remove it to use 8321.";
        let message = format!("{port} is not a valid port");
        errors.push(FieldError::new(path!(spec.networking.port), reason::INVALID, message, remedy));
    }
    let tls = networking.and_then(|networking| networking.tls.as_ref());
    if tls.is_some_and(|tls| tls.enabled == Some(true) && !given(&tls.secret_name)) {
        errors.push(error(
            path!(spec.networking.tls.secretName),
            "secretName is required when TLS is enabled",
            "Set it to the name of a Secret of type kubernetes.io/tls in the namespace of this object.",
            rules::TLS_NEEDS_SECRET,
        ));
    }
    errors
}

pub fn remarks(spec: &LlamaStackDistributionSpec) -> Vec<FieldError> {
    let mut remarks = Vec::new();
    let networking = spec.networking.as_ref();
    let tls = networking.and_then(|networking| networking.tls.as_ref());
    if tls.is_some_and(|tls| tls.enabled != Some(true) && tls.secret_name.is_some()) {
        remarks.push(FieldError::new(
            path!(spec.networking.tls.secretName),
            reason::IGNORED,
            "secretName is only valid when TLS is enabled; the server speaks plain HTTP",
            message!["Set ", path!(spec.networking.tls.enabled), " to true, or remove secretName."],
        ));
    }
    let Some(ExposeForm::Detail(expose)) = networking.and_then(|networking| networking.expose.as_ref()) else {
        return remarks;
    };
    let path = path!(spec.networking.expose);
    remarks.extend(expose.unknown.keys().map(|field| providers::unknown(&path, field, "enabled and hostname")));
    if expose.enabled == Some(false) && expose.hostname.is_some() {
        remarks.push(FieldError::new(
            path.field("hostname"),
            reason::IGNORED,
            "the server is not exposed, so its hostname is not used",
            message!["Set ", path.field("enabled"), " to true, or remove hostname."],
        ));
    }
    remarks
}
