//! Removes the disabled APIs and their providers from the configuration.

use std::collections::BTreeSet;

use serde_json::Value;
use steersman_reconcile::{FieldPath, message, path};

use super::apis;
use super::draft::{self, Draft};
use super::problem::list;

/// The disabled APIs by their names in the file. Disabling an API that the spec has providers for is an error.
pub(super) fn names(draft: &mut Draft<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (place, written) in draft.spec.disabled.iter().flatten().enumerate() {
        let key = match apis::key(written) {
            // The API was renamed in 0.7.
            "agents" if !draft.serves("agents") && draft.serves("responses") => "responses",
            "responses" if !draft.serves("responses") && draft.serves("agents") => "agents",
            key => key,
        };
        if draft.base.is_some() && !draft.serves(key) {
            let served = draft::list(draft.config.get("apis")).iter().filter_map(Value::as_str);
            let remedy = format!("Remove it, or use one of {}.", list(served.map(apis::field)));
            draft.ignore(
                path!(spec.disabled).index(place),
                format!("the distribution has no API {written:?}, so there is nothing to disable"),
                remedy,
            );
        }
        for at in providing(draft, key) {
            let cause = format!(": {written} API is disabled but has providers configured.");
            draft.refuse(
                at.clone(),
                message![at, " conflicts with ", path!(spec.disabled), cause],
                format!("Remove the provider configuration or remove '{written}' from the disabled list."),
            );
        }
        names.insert(key.to_owned());
    }
    names
}

/// The sections of the spec with providers of an API.
fn providing(draft: &Draft<'_>, key: &str) -> Vec<FieldPath> {
    let inline = draft.spec.providers.as_ref().map(apis::of).into_iter().flatten();
    let inline = inline.filter(|(api, form)| api.key == key && form.is_some_and(|form| !form.all().is_empty()));
    let external = draft.spec.external_providers.as_ref().map(apis::of_external).into_iter().flatten();
    let external = external.filter(|(api, list)| api.key == key && !list.is_empty());
    inline
        .map(|(api, _)| path!(spec.providers).field(api.field))
        .chain(external.map(|(api, _)| path!(spec.externalProviders).field(api.field)))
        .collect()
}

pub(super) fn remove(draft: &mut Draft<'_>, disabled: &BTreeSet<String>) {
    if disabled.is_empty() {
        return;
    }
    let listed = draft.config.contains_key("apis");
    let mut names = draft::take_list(&mut draft.config, "apis");
    let before = names.len();
    names.retain(|name| !name.as_str().is_some_and(|name| disabled.contains(name)));
    if before > 0 && names.is_empty() {
        draft.refuse(
            path!(spec.disabled),
            "every API of the distribution is disabled, but a server with an empty list of APIs serves all of them",
            message!["Leave at least one API, or set ", path!(spec.workload.replicas), " to 0 to stop the server."],
        );
    }
    if listed {
        draft.config.insert("apis".to_owned(), Value::Array(names));
    }
    let mut providers = draft::take(&mut draft.config, "providers");
    providers.retain(|api, _| !disabled.contains(api));
    draft.config.insert("providers".to_owned(), Value::Object(providers));
}
