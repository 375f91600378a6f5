//! A cluster in which everything is there that a spec may name, each with a content of its own.
//! Comes in: a spec; goes out: what the operator writes for it, or with what words it is refused.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::base::Base;
use steersman_plan::llamastack::validate::{Facts, Kind, Missing, Named, Reference, validate};
use steersman_plan::llamastack::{ObservedReference, Snapshot, plan, referred};
use steersman_plan::oci::LabelsSeen;
use steersman_reconcile::Severity;

use super::super::of_v1alpha2;
use crate::leaves::Output;

/// Of a server that still has the APIs that newer ones lack.
pub const OLD_IMAGE: &str = "quay.io/me/old:1";

pub fn output(spec: &Value) -> Output {
    let object = json!({ "apiVersion": "llamastack.io/v1alpha2", "kind": "LlamaStackDistribution",
        "metadata": { "name": "starter" }, "spec": spec });
    let facts = Facts {
        namespace: "team-a",
        distributions: &["starter", "postgres-demo"],
        base: None,
        always_mounted: false,
        config_namespace: None,
        found: &BTreeMap::new(),
        missing: Missing::Warn,
    };
    let verdict = validate(&object, None, &facts);
    if !verdict.errors.is_empty() {
        return Output::Refused(
            verdict.errors.iter().map(|error| error.text().to_string()).collect::<Vec<_>>().join(" "),
        );
    }
    let seen = furnished(of_v1alpha2(spec.clone()));
    let plan = plan(&seen);
    if plan.findings.iter().any(|finding| finding.severity == Severity::Blocker) {
        let told: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
        return Output::Refused(told.join(" "));
    }
    let mut parts = BTreeMap::<String, Value>::new();
    for write in &plan.writes {
        let child = json!(write.object());
        let kind = child["kind"].as_str().unwrap().to_owned();
        parts.entry(kind).or_insert_with(|| json!([])).as_array_mut().unwrap().push(child);
    }
    // Each begins with the field that it is about.
    let told = plan.findings.iter().filter_map(|finding| finding.message.split(": ").next());
    Output::Written { parts, told: told.map(str::to_owned).collect() }
}

fn furnished(mut seen: Snapshot) -> Snapshot {
    let labels = |config: Value, version: &str| LabelsSeen::Found {
        digest: String::new(),
        base: Ok(Some(Base { name: "labelled".into(), server_version: version.into(), config })),
        remark: None,
    };
    if seen.object.spec.distribution.image.as_deref() == Some(OLD_IMAGE) {
        let config = json!({ "version": 2, "image_name": "old", "apis": ["agents", "inference",
            "post_training", "telemetry"], "providers": { "inference": [] } });
        seen.labels = labels(config, "0.2.12");
    }
    let mut references = BTreeMap::<Named, ObservedReference>::new();
    for reference in referred(&seen.object) {
        let known = references.entry(reference.named.clone()).or_insert_with(|| ObservedReference {
            secret: reference.named.kind == Kind::Secret,
            namespace: reference.named.namespace.clone(),
            name: reference.named.name.clone(),
            keys: Some(BTreeSet::new()),
            content: (reference.named.kind == Kind::ConfigMap).then(BTreeMap::new),
        });
        known.keys.get_or_insert_default().extend(reference.keys.clone());
        if let Some(content) = &mut known.content {
            content.extend(reference.keys.iter().map(|key| (key.clone(), certificate(&reference, key))));
        }
    }
    let bundle = seen.object.spec.networking.as_ref().and_then(|networking| networking.tls.as_ref()?.ca_bundle.clone());
    if let Some(bundle) = bundle {
        let named = references.values().find(|known| !known.secret && known.name == bundle.config_map_name);
        seen.trust.named = named.and_then(|known| known.content.clone());
    }
    seen.references = references.into_values().collect();
    seen
}

/// The outer form of a certificate, which differs with where it is found.
fn certificate(reference: &Reference, key: &str) -> String {
    let place = format!("{}/{}/{key}", reference.named.namespace, reference.named.name);
    let sum = place.bytes().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    let der = [0x30, 9, 0x30, 1, sum, 0x30, 1, 1, 0x03, 1, 1];
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}
