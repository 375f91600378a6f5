//! Renders the conditions and fields about the configuration: whether it could be generated, whether its Secrets exist, and
//! whether the Deployment uses it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use steersman_api::llamastack::v1alpha2::{ConfigGeneration, LlamaStackDistributionStatus, ResolvedDistribution};
use steersman_api::meta::conditions::{Statement, Truth, whole_seconds};
use steersman_reconcile::{FieldNames, Outcome};

use crate::llamastack::build::adoption;
use crate::llamastack::config::Source;
use crate::llamastack::config::problem::reason;
use crate::llamastack::plan::MISSING_REFERENCE_INTERVAL;
use crate::llamastack::resolution::{Setup, SpecResolution};
use crate::llamastack::snapshot::Snapshot;
use crate::llamastack::stored_status::{
    CONFIG_GENERATED, DEPLOYMENT_UPDATED, LABELS_AWAITED, SECRETS_RESOLVED, condition,
};
use crate::llamastack::validate::referenced_by;

const UPGRADE_FAILURE: &str = "UpgradeConfigFailure";

/// The conditions in order: Secrets, configuration, Deployment.
pub fn statements(
    snapshot: &Snapshot,
    resolution: &SpecResolution,
    refused: bool,
    outcome: &Outcome,
) -> Vec<Statement> {
    let updated = updated(snapshot, resolution, refused, outcome);
    let names = snapshot.object.field_names();
    [secrets(snapshot, resolution, &names), generated(snapshot, resolution, &names), updated]
        .into_iter()
        .flatten()
        .collect()
}

/// The conditions that do not apply to the object.
pub fn unneeded(resolution: &SpecResolution) -> Vec<&'static str> {
    let unconfigured = resolution.setup.as_ref().is_some_and(|setup| setup.config.is_none());
    [
        (SECRETS_RESOLVED, resolution.secret_count == 0),
        (CONFIG_GENERATED, resolution.source != Source::Generated),
        (DEPLOYMENT_UPDATED, unconfigured),
    ]
    .into_iter()
    .filter_map(|(type_, unneeded)| unneeded.then_some(type_))
    .collect()
}

/// Sets the fields about the configuration in use.
pub fn set_fields(snapshot: &Snapshot, resolution: &SpecResolution, status: &mut LlamaStackDistributionStatus) {
    let Some(setup) = &resolution.setup else { return };
    status.resolved_distribution = Some(running_distribution(snapshot, setup));
    // The Deployment uses the previous configuration until it is observed to use the new one.
    let deployed = setup.deployed_config(snapshot).map(|config| config.name.clone());
    let before = status.deployed_config_map_name.take().filter(|_| setup.config.is_some());
    status.deployed_config_map_name = deployed.or(before);
    let before = status.config_generation.take();
    let Some((generated, config)) = setup.generated_config() else { return };
    let same = before.filter(|before| before.config_map_name.as_ref() == Some(&config.name));
    status.config_generation = Some(ConfigGeneration {
        config_map_name: Some(config.name.clone()),
        generated_at: same.and_then(|same| same.generated_at).or(Some(whole_seconds(snapshot.now))),
        provider_count: Some(generated.provider_count),
        resource_count: Some(generated.resource_count),
        config_version: Some(generated.config_version),
    });
}

/// The distribution of the pods: those that were adopted keep the image of the earlier operator.
fn running_distribution(snapshot: &Snapshot, setup: &Setup) -> ResolvedDistribution {
    let kept = adoption::adopted_template(snapshot, setup);
    let image =
        kept.and_then(|kept| kept.live.template.pointer("/spec/containers/0/image")?.as_str().map(str::to_owned));
    match image {
        // The base belongs to the image of this release.
        Some(image) if image != setup.image && setup.generated.is_none() => {
            ResolvedDistribution { image: Some(image), ..ResolvedDistribution::default() }
        }
        image => {
            ResolvedDistribution { image: image.or_else(|| Some(setup.image.clone())), ..setup.distribution.clone() }
        }
    }
}

/// Whether the server runs with the configuration that was generated for this generation of the spec.
pub fn is_generated(snapshot: &Snapshot) -> bool {
    let generation = snapshot.object.generation;
    let of_this_spec = |known: &Condition| known.status == "True" && known.observed_generation == generation;
    generation.is_some()
        && snapshot.deployment.is_some()
        && condition(snapshot, CONFIG_GENERATED).is_some_and(of_this_spec)
}

fn secrets(snapshot: &Snapshot, resolution: &SpecResolution, names: &FieldNames) -> Option<Statement> {
    match resolution.missing_secrets.first() {
        None if resolution.secret_count == 0 => None,
        None if snapshot.settings.ignores_secrets => {
            let message = format!(
                "{} secret references were not checked, because Steersman runs with --secrets=none. If a Secret or key is \
                 missing, the pods report CreateContainerConfigError",
                resolution.secret_count
            );
            Some(Statement::new(SECRETS_RESOLVED, Truth::Unknown, "SecretsNotRead", message))
        }
        None => {
            let message = format!("Resolved {} secret references", resolution.secret_count);
            Some(Statement::new(SECRETS_RESOLVED, Truth::True, "AllSecretsFound", message))
        }
        Some(first) => {
            let mut missing: Vec<String> =
                resolution.missing_secrets.iter().map(|problem| referenced_by(problem, names)).collect();
            if !snapshot.followed {
                missing.push(format!(
                    "Steersman reads it again every {} s; with --secrets=watch and the role that `steersman rbac \
                     --secrets watch` prints, it reacts at once",
                    MISSING_REFERENCE_INTERVAL.as_secs()
                ));
            }
            Some(Statement::new(SECRETS_RESOLVED, Truth::False, first.reason, missing.join(". ")))
        }
    }
}

fn generated(snapshot: &Snapshot, resolution: &SpecResolution, names: &FieldNames) -> Option<Statement> {
    if resolution.source != Source::Generated {
        return None;
    }
    let image = resolution.image_error.as_ref().map(|finding| finding.message.render(names));
    let wrong =
        resolution.config_errors.iter().chain(&resolution.missing_secrets).map(|error| error.text().render(names));
    let errors: Vec<String> = image.into_iter().chain(wrong).collect();
    if let Some(why) = resolution.labels_awaited.as_ref().filter(|_| errors.is_empty()) {
        return (!is_generated(snapshot))
            .then(|| Statement::new(CONFIG_GENERATED, Truth::Unknown, LABELS_AWAITED, why.clone()));
    }
    if errors.is_empty() {
        let message = resolution.setup.as_ref()?.generated.as_ref()?.summary();
        return Some(Statement::new(CONFIG_GENERATED, Truth::True, "ConfigGenerationSucceeded", message));
    }
    let errors = errors.join(" ");
    let ours = resolution.image_error.is_some() || !resolution.config_errors.is_empty();
    let (reason, message) = match resolution.config_errors.first() {
        _ if ours && upgraded(snapshot) => {
            (UPGRADE_FAILURE, format!("Config generation failed after operator upgrade: {errors}"))
        }
        Some(first) if [reason::NO_BASE, reason::VERSION, reason::NO_PROVIDER].contains(&first.reason) => {
            (first.reason, first.sentence().render(names))
        }
        _ => (reason::FAILED, format!("Failed to generate config.yaml: {errors}")),
    };
    Some(Statement::new(CONFIG_GENERATED, Truth::False, reason, message))
}

/// Whether the same spec had a configuration under another version of the operator. Stays true once reported.
fn upgraded(snapshot: &Snapshot) -> bool {
    let generation = snapshot.object.generation;
    let Some(known) = condition(snapshot, CONFIG_GENERATED).filter(|known| known.observed_generation == generation)
    else {
        return false;
    };
    let version = snapshot.object.status.as_ref().and_then(|status| status.version.as_ref());
    let version = version.and_then(|version| version.operator_version.as_ref());
    known.reason == UPGRADE_FAILURE || (known.status == "True" && version != Some(&snapshot.settings.operator_version))
}

fn updated(snapshot: &Snapshot, resolution: &SpecResolution, refused: bool, outcome: &Outcome) -> Option<Statement> {
    let setup = resolution.setup.as_ref().filter(|setup| setup.config.is_some())?;
    if let Some(failure) = &outcome.failure {
        let message = format!("Failed to update Deployment: {}", failure);
        return Some(Statement::new(DEPLOYMENT_UPDATED, Truth::False, "DeploymentUpdateFailed", message));
    }
    // The stored condition stays until the Deployment is observed to use the configuration.
    let message = setup.deployed_config(snapshot).filter(|_| !refused)?.deployed();
    Some(Statement::new(DEPLOYMENT_UPDATED, Truth::True, "DeploymentUpdateSucceeded", message))
}
