//! Renders the parts of the Helm chart and of the Kustomize folders that come from the code: rules of roles, webhook
//! configurations and the operator's Deployment.

use serde_json::{Map, Value, json};
use steersman_api::Family;
use steersman_runtime::rbac::Rule;

use crate::admission::{self, FailurePolicy};
use crate::crds::{self, TargetFlags};
use crate::install::{self, InstallRenderError};
use crate::installation::{NAMESPACE, SecretAccess};
use crate::rbac::{self, Grant, Installations, RbacArgs};
use crate::settings::Switch;
use crate::{controllers, relay};

const HEADER: &str = "\
# Generated from the code; do not edit. `cargo xtask check` fails if this file differs.
";

/// The file `deploy/chart/files/rbac.yaml`: every rule, with the values of the chart that enable it.
pub fn rules() -> Result<String, InstallRenderError> {
    let crd_rules = |of: fn(Family) -> Vec<Rule>| -> Vec<Value> {
        let families = controllers::AVAILABLE.iter();
        families.flat_map(|family| of(*family).into_iter().map(move |rule| of_family(&rule, *family))).collect()
    };
    let file = json!({
        "operator": rbac::grants().iter().map(granted).collect::<Vec<_>>(),
        "profilingJob": relay::rules().iter().map(explained).collect::<Vec<_>>(),
        "thoroughProfilingJob": relay::thorough_rules().iter().map(explained).collect::<Vec<_>>(),
        "applyCrds": crd_rules(crds::apply::rules),
        "detachCrds": crd_rules(crds::detach::rules),
    });
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&file)?))
}

fn explained(rule: &Rule) -> Value {
    json!({ "why": rule.why, "rule": rbac::policy(rule) })
}

fn of_family(rule: &Rule, family: Family) -> Value {
    json!({ "controller": family.short_name(), "why": rule.why, "rule": rbac::policy(rule) })
}

/// The rule with its conditions. Conditions that always hold are left out.
fn granted(grant: &Grant) -> Value {
    let mut entry = Map::new();
    if let Some(family) = grant.controller {
        entry.insert("controller".to_owned(), family.short_name().into());
    }
    if grant.webhooks {
        entry.insert("webhooks".to_owned(), true.into());
    }
    if grant.secrets != SecretAccess::None {
        entry.insert("secrets".to_owned(), grant.secrets.flag_value().into());
    }
    if grant.installations != Installations::All {
        entry.insert("installations".to_owned(), json!(grant.installations));
    }
    // Where the rule belongs: the operator's namespace, the namespaces of the objects, or the cluster.
    let place = match (grant.own, grant.rule.namespaced) {
        (true, _) => "own",
        (false, true) => "objects",
        (false, false) => "cluster",
    };
    entry.insert("place".to_owned(), place.into());
    entry.insert("why".to_owned(), grant.rule.why.into());
    entry.insert("rule".to_owned(), json!(rbac::policy(&grant.rule)));
    Value::Object(entry)
}

/// The file `deploy/chart/files/webhooks.yaml`: the webhook configurations, each with its family. The chart sets namespace,
/// failure policy and labels.
pub fn webhooks() -> Result<String, InstallRenderError> {
    let configuration = |of: &admission::WebhookConfiguration| {
        let manifests = admission::manifests(&[of.family], &TargetFlags::default(), FailurePolicy::default());
        let manifest = manifests.into_iter().find(|manifest| manifest["kind"] == of.kind());
        json!({ "controller": of.family.short_name(), "manifest": manifest })
    };
    let all: Vec<Value> = admission::ALL.iter().map(configuration).collect();
    Ok(format!("{HEADER}{}", serde_saphyr::to_string(&json!({ "configurations": all }))?))
}

/// The file `deploy/kustomize/operator/operator.yaml`.
pub fn kustomize_operator() -> Result<String, InstallRenderError> {
    Ok(format!("{HEADER}{}", install::workload()?.join("---\n")))
}

/// The family of the Kustomize overlay `single-family`. It has one version and no admission webhook, so that the overlay needs
/// no certificates.
pub const SINGLE_FAMILY: Family = Family::Va;

/// The file `deploy/kustomize/overlays/single-family/rbac.yaml`.
pub fn kustomize_single_family() -> Result<String, InstallRenderError> {
    Ok(RbacArgs { controllers: vec![SINGLE_FAMILY], webhooks: Switch::Off, ..RbacArgs::default() }.manifests()?)
}

/// The file `deploy/kustomize/overlays/namespaced/rbac.yaml`. The overlay replaces the namespace.
pub fn kustomize_namespaced() -> Result<String, InstallRenderError> {
    let args = RbacArgs { watch_namespace: Some(NAMESPACE.to_owned()), webhooks: Switch::Off, ..RbacArgs::default() };
    Ok(without_namespace(&args.manifests()?))
}

/// Drops the Namespace: an installation into a single namespace uses an existing one.
fn without_namespace(manifests: &str) -> String {
    let documents = manifests.split("---\n").enumerate();
    let header = manifests.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    let kept = documents.filter(|(index, _)| *index > 0).map(|(_, document)| document);
    header.collect::<String>() + &kept.collect::<Vec<_>>().join("---\n")
}
