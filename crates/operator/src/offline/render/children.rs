//! Plans the children of an object with the operator's own plan, as for a cluster without any of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};
use steersman_plan::llamastack::config::{Base, base};
use steersman_plan::llamastack::validate::{Reference, ReferenceKind, ReferencedObject};
use steersman_plan::llamastack::{
    ObservedReference, ObservedRoute, ObservedServer, ObservedTrust, Settings, Snapshot, findings_of, plan, referred,
};
use steersman_plan::oci::ObservedLabels;
use steersman_reconcile::{FieldNames, Severity};

use crate::llamastack::observe::observe_object;

/// Placeholder for the operator's own image, which only a cluster knows.
const OPERATOR_IMAGE: &str = "steersman";

#[derive(Default)]
pub struct RenderedChildren {
    pub objects: Vec<Value>,
    pub warnings: Vec<String>,
    pub blockers: Vec<String>,
    /// Differences from a cluster, one sentence each.
    pub differences: Vec<String>,
}

/// `manifests` may contain ConfigMaps that the object refers to.
pub fn of(
    stored: &Value,
    given: Option<&Base>,
    manifests: &[Value],
    names: &FieldNames,
) -> anyhow::Result<RenderedChildren> {
    let (snapshot, mut differences) = snapshot(stored, given, manifests)?;
    let plan = plan(&snapshot);
    let mut children = RenderedChildren::default();
    for finding in findings_of(&snapshot) {
        let text = finding.render(names).to_string();
        match finding.severity {
            Severity::Blocker => children.blockers.push(text),
            Severity::Warning | Severity::Info => children.warnings.push(text),
        }
    }
    for write in &plan.writes {
        let mut object = serde_json::to_value(write.object()).context("cannot serialize a child as JSON")?;
        let init_containers = object.pointer("/spec/template/spec/initContainers").and_then(Value::as_array);
        if init_containers.is_some_and(|list| list.iter().any(|container| container["image"] == OPERATOR_IMAGE)) {
            differences.push(format!("the image {OPERATOR_IMAGE:?} is a placeholder for the operator's own image"));
        }
        adjust_metadata(&mut object, stored);
        children.objects.push(object);
    }
    children.differences = differences;
    Ok(children)
}

/// Removes the owner reference if the manifest has no uid, without which it would be refused, and the namespace if kubectl
/// chooses it.
fn adjust_metadata(object: &mut Value, stored: &Value) {
    let owner = &stored["metadata"];
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if !owner["namespace"].is_string() {
        metadata.remove("namespace");
    }
    if !owner["uid"].is_string() {
        metadata.remove("ownerReferences");
    }
}

/// The snapshot of a cluster that has none of the children, but all references.
fn snapshot(stored: &Value, given: Option<&Base>, manifests: &[Value]) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let object = serde_json::from_value(stored.clone()).context("cannot decode the object")?;
    let object = observe_object(&object)?;
    let mut differences = Vec::new();
    let mut references = BTreeMap::<ReferencedObject, ObservedReference>::new();
    for reference in referred(&object) {
        let keys = reference.keys.iter().cloned().collect::<BTreeSet<_>>();
        let content = content(&reference, stored, manifests);
        if content.is_none() && reference.named.kind == ReferenceKind::ConfigMap {
            let ReferencedObject { name, .. } = &reference.named;
            differences.push(format!(
                "ConfigMap {name} is not among the files; objects that depend on its content will differ in a cluster"
            ));
        }
        let known = references.entry(reference.named.clone()).or_insert_with(|| ObservedReference {
            secret: reference.named.kind == ReferenceKind::Secret,
            namespace: reference.named.namespace.clone(),
            name: reference.named.name.clone(),
            keys: Some(BTreeSet::new()),
            content: (reference.named.kind == ReferenceKind::ConfigMap).then(|| {
                content.clone().unwrap_or_else(|| keys.iter().map(|key| (key.clone(), String::new())).collect())
            }),
        });
        let present = content.map(|content| content.into_keys().collect());
        known.keys.get_or_insert_default().extend(present.unwrap_or(keys));
    }
    let references: Vec<ObservedReference> = references.into_values().collect();
    let bundle = object.spec.networking.as_ref().and_then(|networking| networking.tls.as_ref()?.ca_bundle.as_ref());
    let bundle = bundle.and_then(|bundle| {
        references.iter().find(|known| !known.secret && known.name == bundle.config_map_name)?.content.clone()
    });
    let labels = match given.filter(|_| object.spec.distribution.name.as_deref().is_none_or(str::is_empty)) {
        Some(base) => ObservedLabels::Found { digest: String::new(), base: Ok(Some(base.clone())), remark: None },
        None => ObservedLabels::NotRead,
    };
    let snapshot = Snapshot {
        now: Timestamp::UNIX_EPOCH,
        settings: Settings {
            operator_version: env!("CARGO_PKG_VERSION").to_owned(),
            distributions: base::images(),
            operator_image: Some(OPERATOR_IMAGE.to_owned()),
            operator_namespace: Some(crate::installation::NAMESPACE.to_owned()),
            ..Settings::default()
        },
        object,
        deployment: None,
        volume_claim: None,
        service: false,
        ingress: None,
        route: ObservedRoute::NotServed,
        has_legacy_policy: false,
        config_maps: Vec::new(),
        in_use: None,
        references,
        secrets: Vec::new(),
        trust: ObservedTrust { named: bundle, cluster: None },
        followed: true,
        labels,
        any_user: false,
        pods: None,
        oldest_start: None,
        server: ObservedServer::Pending,
    };
    Ok((snapshot, differences))
}

/// The content of a ConfigMap among the manifests. Secrets are never read.
fn content(reference: &Reference, stored: &Value, manifests: &[Value]) -> Option<BTreeMap<String, String>> {
    let ReferencedObject { kind: ReferenceKind::ConfigMap, namespace, name } = &reference.named else { return None };
    let home = &stored["metadata"]["namespace"];
    let is_referenced = |object: &&Value| {
        let namespace_of =
            if object["metadata"]["namespace"].is_null() { home } else { &object["metadata"]["namespace"] };
        object["kind"] == "ConfigMap"
            && object["metadata"]["name"] == name.as_str()
            && namespace_of.as_str().unwrap_or_default() == namespace
    };
    let found = manifests.iter().find(is_referenced)?;
    Some(serde_json::from_value(json!(found["data"])).unwrap_or_default())
}
