//! What the status says of the configuration: whether it could be made, whether its Secrets are there, and whether the
//! Deployment uses it.
//! Comes in: what was seen and what it amounts to; goes out: conditions and fields.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use steersman_api::llamastack::v1alpha2::{ConfigGeneration, LlamaStackDistributionStatus};
use steersman_api::meta::conditions::{Statement, Truth};
use steersman_reconcile::Outcome;

use super::stored;
use crate::llamastack::config::problem::reason;
use crate::llamastack::config::{Problem, Source};
use crate::llamastack::resolve::{Answer, Setup};
use crate::llamastack::seen::Seen;
use crate::llamastack::validate::referenced_by;
use crate::llamastack::{adoption, configmap};

pub const GENERATED: &str = "ConfigGenerated";
pub const UPDATED: &str = "DeploymentUpdated";
pub const SECRETS: &str = "SecretsResolved";
const UPGRADE: &str = "UpgradeConfigFailure";
/// Nothing is known against it, only its base is not there yet.
const WAITS: &str = "ImageLabelsAwaited";
const HASH: &str = "/metadata/annotations/configmap.hash~1user-config";

/// In the order of the way: Secrets, configuration, Deployment.
pub fn statements(seen: &Seen, answer: &Answer, refused: bool, outcome: &Outcome) -> Vec<Statement> {
    [secrets(answer), generated(seen, answer), updated(seen, answer, refused, outcome)].into_iter().flatten().collect()
}

/// The conditions of which there is nothing to say.
pub fn unasked(answer: &Answer) -> Vec<&'static str> {
    let unconfigured = answer.setup.as_ref().is_some_and(|setup| setup.config.is_none());
    [(SECRETS, answer.secret_count == 0), (GENERATED, answer.source != Source::Generated), (UPDATED, unconfigured)]
        .into_iter()
        .filter_map(|(type_, unasked)| unasked.then_some(type_))
        .collect()
}

/// What runs from now on.
pub fn resolved(seen: &Seen, answer: &Answer, status: &mut LlamaStackDistributionStatus) {
    let Some(setup) = &answer.setup else { return };
    status.resolved_distribution = Some(setup.distribution.clone());
    let before = status.config_generation.take();
    let Some((generated, config)) = setup.generated.as_ref().zip(setup.config.as_ref()) else { return };
    let same = before.filter(|before| before.config_map_name.as_ref() == Some(&config.name));
    let seconds = Timestamp::from_second(seen.now.as_second()).unwrap_or(seen.now);
    status.config_generation = Some(ConfigGeneration {
        config_map_name: Some(config.name.clone()),
        generated_at: same.and_then(|same| same.generated_at).or(Some(Time(seconds))),
        provider_count: Some(generated.provider_count),
        resource_count: Some(generated.resource_count),
        config_version: Some(generated.config_version),
    });
}

/// Whether the server runs with what was generated for the very spec that is there.
pub fn made(seen: &Seen) -> bool {
    let generation = seen.object.generation;
    let of_this_spec = |known: &Condition| known.status == "True" && known.observed_generation == generation;
    generation.is_some() && seen.deployment.is_some() && stored(seen, GENERATED).is_some_and(of_this_spec)
}

/// Whether the stored status says that the spec has not been acted on yet.
pub fn waited(seen: &Seen) -> bool {
    stored(seen, GENERATED).is_some_and(|known| known.reason == WAITS)
}

/// What to tell of a configuration that the stored status does not know.
pub fn generated_anew(seen: &Seen, setup: &Setup) -> Option<String> {
    let (_, config) = setup.generated.as_ref().zip(setup.config.as_ref())?;
    let known = seen.object.status.as_ref().and_then(|status| status.config_generation.as_ref());
    let known = known.and_then(|known| known.config_map_name.as_ref());
    (known != Some(&config.name)).then(|| success(setup)).flatten()
}

/// What to tell of a Deployment that uses another configuration than the stored status says.
pub fn updated_anew(seen: &Seen, setup: &Setup) -> Option<String> {
    let message = uses(seen, setup)?;
    stored(seen, UPDATED).is_none_or(|known| known.message != message).then_some(message)
}

fn success(setup: &Setup) -> Option<String> {
    let generated = setup.generated.as_ref()?;
    let (providers, resources) = (generated.provider_count, generated.resource_count);
    Some(format!("Generated config.yaml with {providers} providers and {resources} models"))
}

/// Said where the live Deployment has the ConfigMap with the content that is wanted.
fn uses(seen: &Seen, setup: &Setup) -> Option<String> {
    let config = setup.config.as_ref()?;
    let live = seen.deployment.as_ref()?;
    let current = live.template.pointer(HASH).is_some_and(|hash| *hash == config.hash.as_str())
        || adoption::kept(seen, setup).is_some();
    (current && configmap::mounted(&live.template).contains(&config.name))
        .then(|| format!("Deployment updated with config {}", config.name))
}

fn statement(type_: &str, truth: Truth, reason: &str, message: String) -> Statement {
    Statement { type_: type_.to_owned(), truth, reason: reason.to_owned(), message }
}

fn secrets(answer: &Answer) -> Option<Statement> {
    match answer.secrets.first() {
        None if answer.secret_count == 0 => None,
        None => {
            let message = format!("Resolved {} secret references", answer.secret_count);
            Some(statement(SECRETS, Truth::True, "AllSecretsFound", message))
        }
        Some(first) => {
            let said: Vec<String> = answer.secrets.iter().map(referenced_by).collect();
            Some(statement(SECRETS, Truth::False, first.reason, said.join(". ")))
        }
    }
}

fn generated(seen: &Seen, answer: &Answer) -> Option<Statement> {
    if answer.source != Source::Generated {
        return None;
    }
    let image = answer.image.as_ref().map(|finding| finding.message.clone());
    let wrong = answer.errors.iter().chain(&answer.secrets).map(Problem::text);
    let said: Vec<String> = image.into_iter().chain(wrong).collect();
    if let Some(why) = answer.waits.as_ref().filter(|_| said.is_empty()) {
        return (!made(seen)).then(|| statement(GENERATED, Truth::Unknown, WAITS, why.clone()));
    }
    if said.is_empty() {
        let message = answer.setup.as_ref().and_then(success)?;
        return Some(statement(GENERATED, Truth::True, "ConfigGenerationSucceeded", message));
    }
    let said = said.join(" ");
    let ours = answer.image.is_some() || !answer.errors.is_empty();
    let (reason, message) = match answer.errors.first() {
        _ if ours && upgraded(seen) => (UPGRADE, format!("Config generation failed after operator upgrade: {said}")),
        Some(first) if [reason::NO_BASE, reason::VERSION, reason::NO_PROVIDER].contains(&first.reason) => {
            (first.reason, first.sentence())
        }
        _ => (reason::FAILED, format!("Failed to generate config.yaml: {said}")),
    };
    Some(statement(GENERATED, Truth::False, reason, message))
}

/// Whether the same spec had a configuration under another version of the operator. Once told, it stays that.
fn upgraded(seen: &Seen) -> bool {
    let generation = seen.object.generation;
    let Some(known) = stored(seen, GENERATED).filter(|known| known.observed_generation == generation) else {
        return false;
    };
    let version = seen.object.status.as_ref().and_then(|status| status.version.as_ref());
    let version = version.and_then(|version| version.operator_version.as_ref());
    known.reason == UPGRADE || (known.status == "True" && version != Some(&seen.settings.operator_version))
}

fn updated(seen: &Seen, answer: &Answer, refused: bool, outcome: &Outcome) -> Option<Statement> {
    let setup = answer.setup.as_ref().filter(|setup| setup.config.is_some())?;
    if let Some(failure) = &outcome.failure {
        let message = format!("Failed to update Deployment: {}", failure);
        return Some(statement(UPDATED, Truth::False, "DeploymentUpdateFailed", message));
    }
    // Until the Deployment was seen to use it, what was said before stands.
    let message = uses(seen, setup).filter(|_| !refused)?;
    Some(statement(UPDATED, Truth::True, "DeploymentUpdateSucceeded", message))
}
