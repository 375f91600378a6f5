//! Resolves the names in a spec: image, configuration, Secrets and certificates. Private to the plan, so that a
//! configuration is generated once per reconcile.

use std::collections::BTreeMap;

use steersman_api::llamastack::v1alpha2::{LlamaStackDistributionSpec, ResolvedDistribution};
use steersman_reconcile::{Finding, Message, message, path};

use crate::content_hash;
use crate::llamastack::build::{ca, configmap};
use crate::llamastack::config::base::{self, NoBase, Resolved};
use crate::llamastack::config::problem::reason;
use crate::llamastack::config::{
    CONFIG_KEY, CONFIG_PATH, FieldError, Generated, Input, LEGACY_CONFIG_KEY, LEGACY_CONFIG_PATH, Merge, Pod, Source,
    check, check_without_file, generate, hash_of_base, pod_without_generated_file, source,
};
use crate::llamastack::fields;
use crate::llamastack::operator_config::Images;
use crate::llamastack::resolution::{Config, HashedText, Setup, SpecResolution};
use crate::llamastack::snapshot::{ObservedObject, ObservedReference, Settings, Snapshot};
use crate::llamastack::validate::{Reference, ReferenceKind, ReferenceState, ReferencedObject, missing, references};
use crate::oci::{Choice, ObservedLabels, choose};

pub(super) fn resolve(snapshot: &Snapshot) -> SpecResolution {
    let spec = &snapshot.object.spec;
    let image = image(&snapshot.settings, &snapshot.object);
    let name = fields::distribution(spec);
    let mounts_always = name.and_then(base::distribution).is_some_and(|known| known.mounts_always);
    let source = source(spec, mounts_always);
    let choice = choice(snapshot);
    let base = match &choice {
        Choice::Use { resolved, .. } => Some(resolved),
        Choice::Wait(_) | Choice::Nothing(_) => None,
    };
    let mut resolution = SpecResolution { source, ..SpecResolution::default() };
    let generated = configuration(snapshot, &choice, &mut resolution);
    look_up(snapshot, &mut resolution);
    let bundle = ca::bundle(snapshot).unwrap_or_else(|problem| {
        resolution.config_map_errors.push(problem);
        None
    });
    let config = config(snapshot, source, generated.as_ref());
    let pod = pod(snapshot, config.as_ref(), generated.as_ref());
    resolution.config_errors.extend(needs_image(snapshot, &pod));
    let unread =
        (source == Source::Override && config.is_none()) || (ca::reference(spec).is_some() && bundle.is_none());
    if unread && resolution.config_map_errors.is_empty() {
        resolution.config_map_errors.push(FieldError::new(
            path!(spec),
            reason::NO_CONFIG_MAP,
            "a ConfigMap that the spec references could not be read completely",
            "Check that it exists and has the keys that the spec names.",
        ));
    }
    let image = match image.and_then(|image| fits(snapshot, source, base, image)) {
        Ok(image) => image,
        Err(finding) => {
            resolution.image_error = Some(finding);
            // A missing base is a consequence of the image error and not reported twice.
            resolution.config_errors.clear();
            return resolution;
        }
    };
    let whole = resolution.config_errors.is_empty()
        && resolution.missing_secrets.is_empty()
        && resolution.config_map_errors.is_empty();
    if whole && resolution.labels_awaited.is_none() {
        // A tag may move, and a node may have an older image of it. The configuration must run in the image it was
        // generated for.
        let labelled = base.is_some_and(|base| base.source == base::BaseSource::OciLabel);
        let image = if labelled { with_digest(&image, &snapshot.labels) } else { image };
        let distribution = resolved(&image, source, base);
        let bundle = bundle.map(|text| HashedText { hash: content_hash::hex(&text), text });
        resolution.setup = Some(Setup { image, distribution, config, generated, pod, bundle });
    }
    resolution
}

/// Chooses the base, as far as the labels are known.
fn choice(snapshot: &Snapshot) -> Choice {
    let running = snapshot.object.status.as_ref().and_then(|status| status.resolved_distribution.as_ref());
    let running = running.and_then(|running| running.config_source.as_deref());
    let running = [base::BaseSource::OciLabel, base::BaseSource::Embedded]
        .into_iter()
        .find(|known| running == Some(known.as_str()));
    choose(fields::distribution(&snapshot.object.spec), &snapshot.labels, running)
}

/// An image whose labels determine an object's configuration, and the account whose pods pull it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelsWanted {
    pub image: String,
    pub service_account: String,
}

/// The image whose labels to read. None: nothing is generated, or the base is part of this release.
pub fn labels_wanted(settings: &Settings, object: &ObservedObject) -> Option<LabelsWanted> {
    let spec = &object.spec;
    let known = fields::distribution(spec).and_then(base::distribution);
    if source(spec, known.is_some_and(|known| known.mounts_always)) != Source::Generated {
        return None;
    }
    let image = image(settings, object).ok()?;
    let shipped = known.is_some_and(|known| known.image == image);
    (!shipped).then(|| LabelsWanted { image, service_account: fields::service_account(object) })
}

/// A reference may have both a tag and a digest: the digest decides, the tag stays readable.
fn with_digest(image: &str, labels: &ObservedLabels) -> String {
    match labels {
        ObservedLabels::Found { digest, .. } if !digest.is_empty() && !image.contains('@') => {
            format!("{image}@{digest}")
        }
        _ => image.to_owned(),
    }
}

/// An empty string counts as unset.
fn image(settings: &Settings, object: &ObservedObject) -> Result<String, Finding<Message>> {
    let spec = &object.spec;
    let name = fields::distribution(spec);
    let image = spec.distribution.image.as_deref().filter(|image| !image.is_empty());
    let known = || settings.distributions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let either = || {
        message![
            "Set ",
            path!(spec.distribution.name),
            format!(" to one of {}, or ", known()),
            path!(spec.distribution.image),
            "."
        ]
    };
    match (name, image) {
        (None, Some(image)) => Ok(image.to_owned()),
        (Some(name), None) => match settings.distributions.get(name) {
            Some(image) => Ok(running(settings, object, name).unwrap_or(image).clone()),
            None => Err(Finding::blocker(
                "DistributionUnknown",
                format!("failed to validate distribution: {name}. Distribution name not supported"),
                either(),
            )),
        },
        (None, None) => Err(Finding::blocker(
            "DistributionMissing",
            "failed to validate distribution: either distribution.name or distribution.image must be set",
            either(),
        )),
        (Some(_), Some(_)) => Err(Finding::blocker(
            "DistributionAmbiguous",
            "Only one of name or image can be specified",
            message!["Remove ", path!(spec.distribution.name), " or ", path!(spec.distribution.image), "."],
        )),
    }
}

/// The current image of a server of this distribution, while the operator's ConfigMap with the images cannot be read.
fn running<'a>(settings: &Settings, object: &'a ObservedObject, name: &str) -> Option<&'a String> {
    let status = object.status.as_ref().filter(|_| settings.operator_config.images == Images::Unknown)?;
    let active = status.distribution_config.as_ref()?.active_distribution.as_deref();
    status.resolved_distribution.as_ref().filter(|_| active == Some(name))?.image.as_ref()
}

/// Refuses a base of a newer operator version for an image that stays only because no other is known: the base is made
/// for another image.
fn fits(
    snapshot: &Snapshot,
    source: Source,
    base: Option<&Resolved>,
    image: String,
) -> Result<String, Finding<Message>> {
    let name = fields::distribution(&snapshot.object.spec).unwrap_or_default();
    let shipped = snapshot.settings.distributions.get(name).filter(|shipped| **shipped != image);
    let status = snapshot.object.status.as_ref().and_then(|status| status.resolved_distribution.as_ref());
    let made_from = status.and_then(|status| status.config_hash.as_ref());
    let now = base.map(|base| hash_of_base(&base.base.config));
    let other_base = source == Source::Generated && made_from.is_some() && made_from != now.as_ref();
    match shipped {
        Some(shipped) if other_base && running(&snapshot.settings, &snapshot.object, name).is_some() => {
            let message = format!(
                "The server runs image {image}, but this version of Steersman generates its configuration for \
                 {shipped}. ConfigMap {}, which may set the image, cannot be read. The server stays unchanged until \
                 it can",
                snapshot.settings.operator_config.place
            );
            Err(Finding::blocker("OperatorConfigInvalid", message, "Correct the ConfigMap, or let Steersman read it."))
        }
        _ => Ok(image),
    }
}

fn resolved(image: &str, source: Source, base: Option<&Resolved>) -> ResolvedDistribution {
    // A user's own configuration has no base.
    let base = base.filter(|_| source != Source::Override);
    ResolvedDistribution {
        image: Some(image.to_owned()),
        config_source: base.map(|base| base.source.as_str().to_owned()),
        config_hash: base.map(|base| hash_of_base(&base.base.config)),
    }
}

/// Generates the configuration, if the spec asks for one.
fn configuration(snapshot: &Snapshot, choice: &Choice, resolution: &mut SpecResolution) -> Option<Generated> {
    let spec = &snapshot.object.spec;
    let (mut errors, mut generated) = (Vec::new(), None);
    if resolution.source == Source::Generated {
        let merge = Merge::parse(snapshot.object.provider_merge.as_deref()).unwrap_or_else(|problem| {
            errors.push(problem);
            Merge::default()
        });
        let operator_image = snapshot.settings.operator_image.as_deref().unwrap_or_default();
        let input = |base| Input { spec, base, merge, operator_image };
        let made = match choice {
            Choice::Use { resolved, .. } => generate(&input(Some(&resolved.base))),
            Choice::Nothing(why) => generate(&input(None)).map_err(|errors| explained(errors, why)),
            Choice::Wait(why) => {
                resolution.labels_awaited = Some(why.clone());
                Err(check(&input(None)).errors)
            }
        };
        match made {
            Ok(made) => {
                resolution.warnings = made.remarks.iter().cloned().chain(labels_remarks(spec, choice)).collect();
                generated = Some(made);
            }
            Err(found) => errors.extend(found),
        }
    } else {
        let checked = check_without_file(spec);
        (errors, resolution.warnings) = (checked.errors, checked.remarks);
    }
    // Rules of the plan report an invalid port and an invalid distribution in words of their own.
    let listens = (1..=65_535).contains(&fields::port(spec));
    let (distribution, port) = (path!(spec.distribution), path!(spec.networking.port));
    let reported = |problem: &FieldError| {
        (problem.path == distribution && problem.reason == reason::INVALID) || (problem.path == port && !listens)
    };
    resolution.config_errors = errors.into_iter().filter(|problem| !reported(problem)).collect();
    generated
}

/// Adds the reason why the labels of the image give no base.
fn explained(mut errors: Vec<FieldError>, why: &NoBase) -> Vec<FieldError> {
    if let NoBase::Labels(wrong) = why {
        for error in errors.iter_mut().filter(|error| error.reason == reason::NO_BASE) {
            let labels = format!(" The labels of this image cannot be used: {wrong}.");
            error.remedy = error.remedy.clone().with(labels);
        }
    }
    errors
}

/// Remarks about unusable labels of an image that has a base all the same.
fn labels_remarks(spec: &LlamaStackDistributionSpec, choice: &Choice) -> Vec<FieldError> {
    let Choice::Use { resolved, remark } = choice else { return Vec::new() };
    let field = if fields::distribution(spec).is_some() { "name" } else { "image" };
    let used = match resolved.source {
        base::BaseSource::OciLabel => "Steersman uses the labels that it read last until the registry answers.",
        base::BaseSource::Embedded => "Steersman uses the base configuration of this release instead.",
    };
    let to_error = |text: String| FieldError::new(path!(spec.distribution).field(field), reason::LABELS, text, used);
    let wrong = resolved.passed_over.as_ref().map(|wrong| format!("the labels of the image cannot be used: {wrong}"));
    remark.clone().into_iter().chain(wrong).map(to_error).collect()
}

fn pod(snapshot: &Snapshot, config: Option<&Config>, generated: Option<&Generated>) -> Pod {
    let operator_image = snapshot.settings.operator_image.as_deref().unwrap_or_default();
    match generated {
        Some(generated) => generated.pod.clone(),
        None => {
            let path = config.map_or(CONFIG_PATH, |config| config.path);
            pod_without_generated_file(&snapshot.object.spec, path, operator_image)
        }
    }
}

fn needs_image(snapshot: &Snapshot, pod: &Pod) -> Option<FieldError> {
    let images = || pod.init_containers.iter().filter_map(|container| container.image.as_deref());
    let unknown = snapshot.settings.operator_image.is_none() && images().any(str::is_empty);
    unknown.then(|| {
        FieldError::new(
            path!(spec),
            reason::FAILED,
            "the pod needs init containers of Steersman's own image, which is not configured",
            "Start Steersman with --operator-image (or the environment variable OPERATOR_IMAGE) set to its own image.",
        )
    })
}

/// The references to look up for an object.
pub fn referred(object: &ObservedObject) -> Vec<Reference> {
    let config_namespace = object.v1alpha1.config_namespace.as_deref();
    let all = references(&object.spec, &object.namespace).into_iter();
    all.map(|reference| reference.with_config_namespace(config_namespace)).collect()
}

fn look_up(snapshot: &Snapshot, resolution: &mut SpecResolution) {
    let mut found: BTreeMap<ReferencedObject, ReferenceState> = snapshot
        .references
        .iter()
        .map(|known| {
            let kind = if known.secret { ReferenceKind::Secret } else { ReferenceKind::ConfigMap };
            let named = ReferencedObject { kind, namespace: known.namespace.clone(), name: known.name.clone() };
            let found = known.keys.clone().map_or(ReferenceState::Missing, |keys| ReferenceState::Exists(Some(keys)));
            (named, found)
        })
        .collect();
    let referred = referred(&snapshot.object);
    // A reference that was not looked up counts as absent, so that nothing is built on it. Kubelets report missing Secrets
    // that Steersman may not read.
    for reference in &referred {
        let ignored = snapshot.settings.ignores_secrets && reference.named.kind == ReferenceKind::Secret;
        let unread = if ignored { ReferenceState::Exists(None) } else { ReferenceState::Missing };
        found.entry(reference.named.clone()).or_insert(unread);
    }
    resolution.secret_count = referred.iter().filter(|reference| reference.named.kind == ReferenceKind::Secret).count();
    let of_secrets = |problem: &FieldError| [reason::NO_SECRET, reason::NO_SECRET_KEY].contains(&problem.reason);
    (resolution.missing_secrets, resolution.config_map_errors) =
        missing(&referred, &found).into_iter().partition(of_secrets);
}

/// The ConfigMap to mount. None: nothing is mounted, or it could not be read.
fn config(snapshot: &Snapshot, source: Source, generated: Option<&Generated>) -> Option<Config> {
    let object = &snapshot.object;
    let ours = |text: &str, hash: &str| Config {
        name: configmap::name(&object.name, hash, text, &snapshot.config_maps),
        hash: hash.to_owned(),
        text: Some(text.to_owned()),
        path: CONFIG_PATH,
    };
    match source {
        Source::Distribution => None,
        Source::Generated => generated.map(|generated| ours(&generated.config_yaml, &generated.hash)),
        Source::Override => {
            let name = &object.spec.override_config.as_ref()?.config_map_name;
            let elsewhere = object.v1alpha1.config_namespace.as_deref().filter(|given| *given != object.namespace);
            let namespace = elsewhere.unwrap_or(&object.namespace);
            let known =
                |known: &&ObservedReference| !known.secret && known.name == *name && known.namespace == namespace;
            let content = snapshot.references.iter().find(known)?.content.as_ref()?;
            // A pod mounts ConfigMaps of its own namespace only, so that one from another namespace is copied.
            if elsewhere.is_some() {
                let text = content.get(CONFIG_KEY).or_else(|| content.get(LEGACY_CONFIG_KEY))?;
                return Some(ours(text, &content_hash::hex(text)));
            }
            let hash = content_hash::hex(&serde_json::json!(content).to_string());
            let legacy = !content.contains_key(CONFIG_KEY) && content.contains_key(LEGACY_CONFIG_KEY);
            let path = if legacy { LEGACY_CONFIG_PATH } else { CONFIG_PATH };
            Some(Config { name: name.clone(), hash, text: None, path })
        }
    }
}
