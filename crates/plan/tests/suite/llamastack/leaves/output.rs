//! Plans a spec in a cluster that has every object a spec may name, and collects the written objects or the rejection.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::base::Base;
use steersman_plan::llamastack::validate::{Facts, Missing, Reference, ReferenceKind, ReferencedObject, validate};
use steersman_plan::llamastack::{ObservedReference, Snapshot, plan, referred};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::Severity;

use super::super::snapshot_from_v1alpha2;
use crate::leaves::Output;

/// Image of an old server, with APIs that newer servers lack.
pub const OLD_IMAGE: &str = "quay.io/me/old:1";

pub fn reconcile_spec(spec: &Value) -> Output {
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
    let review = validate(&object, None, &facts);
    if !review.errors.is_empty() {
        return Output::Rejected(
            review.errors.iter().map(|error| error.text().to_string()).collect::<Vec<_>>().join(" "),
        );
    }
    let snapshot = with_cluster_objects(snapshot_from_v1alpha2(spec.clone()));
    let plan = plan(&snapshot);
    if plan.findings.iter().any(|finding| finding.severity == Severity::Blocker) {
        let messages: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
        return Output::Rejected(messages.join(" "));
    }
    let mut parts = BTreeMap::<String, Value>::new();
    for write in &plan.writes {
        let child = json!(write.object());
        let kind = child["kind"].as_str().unwrap().to_owned();
        parts.entry(kind).or_insert_with(|| json!([])).as_array_mut().unwrap().push(child);
    }
    // A message begins with the field that it is about.
    let reported_fields = plan.findings.iter().filter_map(|finding| finding.message.split(": ").next());
    Output::Written { parts, reported_fields: reported_fields.map(str::to_owned).collect() }
}

fn with_cluster_objects(mut snapshot: Snapshot) -> Snapshot {
    let labels = |config: Value, version: &str| ObservedLabels::Found {
        digest: String::new(),
        base: Ok(Some(Base { name: "labelled".into(), server_version: version.into(), config })),
        remark: None,
    };
    if snapshot.object.spec.distribution.image.as_deref() == Some(OLD_IMAGE) {
        let config = json!({ "version": 2, "image_name": "old", "apis": ["agents", "inference",
            "post_training", "telemetry"], "providers": { "inference": [] } });
        snapshot.labels = labels(config, "0.2.12");
    }
    let mut references = BTreeMap::<ReferencedObject, ObservedReference>::new();
    for reference in referred(&snapshot.object) {
        let known = references.entry(reference.named.clone()).or_insert_with(|| ObservedReference {
            secret: reference.named.kind == ReferenceKind::Secret,
            namespace: reference.named.namespace.clone(),
            name: reference.named.name.clone(),
            keys: Some(BTreeSet::new()),
            content: (reference.named.kind == ReferenceKind::ConfigMap).then(BTreeMap::new),
        });
        known.keys.get_or_insert_default().extend(reference.keys.clone());
        if let Some(content) = &mut known.content {
            content.extend(reference.keys.iter().map(|key| (key.clone(), certificate(&reference, key))));
        }
    }
    let bundle =
        snapshot.object.spec.networking.as_ref().and_then(|networking| networking.tls.as_ref()?.ca_bundle.clone());
    if let Some(bundle) = bundle {
        let named = references.values().find(|known| !known.secret && known.name == bundle.config_map_name);
        snapshot.trust.named = named.and_then(|known| known.content.clone());
    }
    snapshot.references = references.into_values().collect();
    snapshot
}

/// A minimal certificate whose content depends on the object and key that hold it.
fn certificate(reference: &Reference, key: &str) -> String {
    let place = format!("{}/{}/{key}", reference.named.namespace, reference.named.name);
    let sum = place.bytes().fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    let der = [0x30, 9, 0x30, 1, sum, 0x30, 1, 1, 0x03, 1, 1];
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}
