//! Validates LlamaStackDistributions by the rules of the plan, and looks up the Secrets and ConfigMaps that a request adds.
//!
//! A lookup that fails or takes too long is a warning, never a refusal.

mod references;

use kube::api::DynamicObject;
use kube::core::admission::AdmissionRequest;
use steersman_api::Family;
use steersman_plan::llamastack::config::base::{distribution, names, resolve};
use steersman_plan::llamastack::deletion_warning;
use steersman_plan::llamastack::validate::{Facts, Missing, Review, validate};
use steersman_runtime::client::Server;
use steersman_runtime::cpu_bound;
use steersman_runtime::rbac::Rule;

use crate::installation::SecretAccess;
use crate::webhooks::admission::{Handler, Response, async_handler};
use crate::webhooks::case::AdmissionCase;
use references::LookupResults;

pub use references::{rules, secret_rules};

const FAMILY: Family = Family::Llsd;

pub fn validator(server: Server, missing: Missing, secrets: SecretAccess) -> Handler {
    async_handler(move |request| decide(server.clone(), missing, secrets, request))
}

async fn decide(
    server: Server,
    missing: Missing,
    secrets: SecretAccess,
    request: AdmissionRequest<DynamicObject>,
) -> Response {
    let case = match cpu_bound::run(|| AdmissionCase::read(FAMILY, request)) {
        Ok(Some(case)) => case,
        Ok(None) => return Response::allow(),
        Err(response) => return *response,
    };
    let lookups = references::look_up(&server, &case, secrets).await;
    let review = cpu_bound::run(|| review(&case, &lookups, missing));
    case.response(&review.errors, review.warnings.iter().chain(&lookups.unknown))
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
