//! Validates LlamaStackDistributions by the rules of the plan, and looks up the Secrets and ConfigMaps that a request adds.
//!
//! A lookup that fails or takes too long is a warning, never a refusal.

mod references;

use std::sync::Arc;

use steersman_api::Family;
use steersman_plan::llamastack::config::base::{distribution, names, resolve};
use steersman_plan::llamastack::deletion_warning;
use steersman_plan::llamastack::validate::{Facts, Missing, Review, validate};
use steersman_runtime::client::Server;
use steersman_runtime::rbac::Rule;

use crate::installation::SecretAccess;
use crate::webhooks::admission::{Handler, Response, lookup_handler};
use crate::webhooks::case::AdmissionCase;
use references::{LookupResults, ReferenceLookups, RequestedReferences};

pub use references::{rules, secret_rules};

const FAMILY: Family = Family::Llsd;

pub fn validator(server: Server, missing: Missing, secrets: SecretAccess) -> Handler {
    let lookups = Arc::new(ReferenceLookups::new(server));
    let read = move |request| match AdmissionCase::read(FAMILY, request) {
        Ok(Some(case)) => {
            let requested = RequestedReferences::of(&case, secrets);
            Ok((case, requested))
        }
        Ok(None) => Err(Response::allow()),
        Err(response) => Err(*response),
    };
    let look_up = move |read: Arc<(AdmissionCase, RequestedReferences)>| {
        let lookups = lookups.clone();
        async move { lookups.look_up(&read.0, &read.1).await }
    };
    lookup_handler(read, look_up, move |(case, _), lookups: LookupResults| {
        let review = review(case, &lookups, missing);
        case.response(&review.errors, review.warnings.iter().chain(&lookups.unknown))
    })
}

fn review(case: &AdmissionCase, lookups: &LookupResults, missing: Missing) -> Review {
    let name = case.new["spec"]["distribution"]["name"].as_str();
    // The labels of the image are not read here: a registry may be slow, and its answer may change.
    let base = resolve(name, Ok(None)).ok().map(|resolved| resolved.base);
    let known: Vec<&str> = names().collect();
    let facts = Facts {
        namespace: &case.namespace,
        distributions: &known,
        base: base.as_deref(),
        always_mounted: name.and_then(distribution).is_some_and(|known| known.mounts_always),
        config_namespace: lookups.config_namespace.as_deref(),
        found: &lookups.found,
        missing,
    };
    let mut review = validate(&case.new, case.old.as_ref(), &facts);
    review.warnings.extend(deletion_warning(&case.new, case.old.as_ref()).map(|warning| warning.text()));
    review
}
