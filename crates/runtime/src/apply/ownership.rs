//! Decides whether an existing object may be written: yes, yes after adoption, or no with the owner's name and a remedy.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use steersman_reconcile::{Failure, ObjectId};

use super::owner::{Legacy, Owner, controller};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Our right to write an existing child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Ours,
    /// An earlier operator made it: its fields are taken over first.
    Legacy,
}

/// Causes for not writing an existing child.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OwnershipConflict {
    #[error("it is being deleted; Steersman creates it again once it is gone")]
    Leaving,
    #[error(
        "it still belongs to an earlier {owner} that was deleted; Steersman creates it again once the garbage collector has \
         deleted it"
    )]
    Predecessor { owner: String },
    #[error(
        "it is controlled by {controller}, not by {owner}, so Steersman does not change it; delete it, or give {owner} another \
         name"
    )]
    Controlled { controller: String, owner: String },
    #[error(
        "it already exists, has no controller and was not created for {owner}, so Steersman does not change it; delete it, or \
         give {owner} another name"
    )]
    Foreign { owner: String },
    #[error(
        "it already exists without the labels {labels}, so Steersman does not change it; delete it, or add these labels to let \
         Steersman manage it"
    )]
    Unlabelled { labels: String },
    #[error("it was created for {other}, so Steersman does not change it; delete it once {other} no longer needs it")]
    OfAnother { other: String },
    #[error(
        "another operator is writing this object (field manager {manager:?}), so Steersman no longer writes it; stop that \
         operator, then clear metadata.managedFields: kubectl patch {command} --type=json -p '[{{\"op\":\"replace\",\"path\":\"/metadata/managedFields\",\"value\":[{{}}]}}]'"
    )]
    Contested { manager: String, command: String },
}

impl OwnershipConflict {
    pub(super) fn into_failure(self, object: ObjectId) -> Failure {
        let transient = matches!(self, Self::Leaving | Self::Predecessor { .. });
        Failure { object, message: self.to_string(), transient, conflict: false }
    }
}

pub(super) fn check(
    owner: &Owner,
    manager: &str,
    wanted: &DynamicObject,
    live: &DynamicObject,
) -> Result<Claim, OwnershipConflict> {
    if live.metadata.deletion_timestamp.is_some() {
        return Err(OwnershipConflict::Leaving);
    }
    let legacy = owner.legacy.as_ref();
    let legacy_entry = legacy.and_then(|legacy| live.managed_fields().iter().find(|entry| is_legacy(entry, legacy)));
    match controller(live) {
        Some(reference) if reference.uid == owner.uid => {}
        Some(reference) if reference.kind == owner.kind.kind && reference.name == owner.name => {
            return Err(OwnershipConflict::Predecessor { owner: owner.id().to_string() });
        }
        Some(reference) => {
            let controller = format!("{} {}/{}", reference.kind, owner.namespace, reference.name);
            return Err(OwnershipConflict::Controlled { controller, owner: owner.id().to_string() });
        }
        None if legacy.is_some_and(|legacy| has_legacy_label(live, legacy)) && same_selector(wanted, live) => {}
        // We applied this object, and it has no controller: the reference was removed, or the object was restored from
        // a backup.
        None if is_managed_by(live, manager) => {}
        None => return Err(OwnershipConflict::Foreign { owner: owner.id().to_string() }),
    }
    match legacy_entry {
        None => Ok(Claim::Ours),
        // Any operator may have the field manager `manager`. An entry of metadata alone does not contest our child.
        Some(entry) if is_managed_by(live, manager) && !is_about_the_object(entry) => Ok(Claim::Ours),
        Some(entry) if is_managed_by(live, manager) => {
            let kind = live.types.as_ref().map_or("object", |types| types.kind.as_str()).to_lowercase();
            let command = format!("{kind} {} -n {}", live.name_any(), owner.namespace);
            Err(OwnershipConflict::Contested { manager: entry.manager.clone().unwrap_or_default(), command })
        }
        Some(_) => Ok(Claim::Legacy),
    }
}

/// Checks an object that is written for the owner, but not controlled by it. It is ours if we wrote it before, or by its labels.
pub(super) fn check_unowned(
    owner: &Owner,
    manager: &str,
    wanted: &DynamicObject,
    live: &DynamicObject,
) -> Result<Claim, OwnershipConflict> {
    if live.metadata.deletion_timestamp.is_some() {
        return Err(OwnershipConflict::Leaving);
    }
    let wanted_by = controller(wanted).map(|reference| &reference.uid);
    // Earlier operators made the owner its controller; that reference is removed before the write.
    let known = |uid: &String| Some(uid) == wanted_by || *uid == owner.uid;
    if let Some(other) = controller(live).filter(|reference| !known(&reference.uid)) {
        let controller = format!("{} {}/{}", other.kind, owner.namespace, other.name);
        return Err(OwnershipConflict::Controlled { controller, owner: owner.id().to_string() });
    }
    let labelled = wanted.labels().iter().all(|(key, value)| live.labels().get(key) == Some(value));
    // An object that we applied earlier belongs to the owner that its labels name.
    if let Some(other) = named_by_labels(owner, wanted, live) {
        return Err(OwnershipConflict::OfAnother { other: format!("{} {}/{other}", owner.kind.kind, owner.namespace) });
    }
    if labelled || is_managed_by(live, manager) {
        return Ok(Claim::Ours);
    }
    let labels: Vec<String> = wanted.labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
    Err(OwnershipConflict::Unlabelled { labels: labels.join(", ") })
}

/// The other owner named by a label that should hold this owner's name.
fn named_by_labels<'a>(owner: &Owner, wanted: &DynamicObject, live: &'a DynamicObject) -> Option<&'a str> {
    let naming = wanted.labels().iter().filter(|(_, value)| **value == owner.name);
    let found = naming.filter_map(|(key, _)| live.labels().get(key));
    found.map(String::as_str).find(|name| *name != owner.name)
}

/// Whether an earlier operator wrote this entry for the object itself. Entries for the status do not matter.
pub(super) fn is_legacy(entry: &ManagedFieldsEntry, legacy: &Legacy) -> bool {
    let known = |manager: &String| legacy.managers.contains(manager);
    entry.subresource.as_deref().unwrap_or_default().is_empty() && entry.manager.as_ref().is_some_and(known)
}

/// Whether `manager` has applied something of it.
pub fn is_managed_by(live: &DynamicObject, manager: &str) -> bool {
    live.managed_fields().iter().any(|entry| is_ours(entry, manager))
}

/// Whether an entry is about what the object is for, and not only about its metadata.
fn is_about_the_object(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.as_object());
    // An entry without a list of fields may be about anything.
    fields.is_none_or(|fields| fields.keys().any(|name| name != "f:metadata"))
}

pub(super) fn is_ours(entry: &ManagedFieldsEntry, manager: &str) -> bool {
    entry.manager.as_deref() == Some(manager)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

fn has_legacy_label(live: &DynamicObject, legacy: &Legacy) -> bool {
    live.labels().get(MANAGED_BY) == Some(&legacy.managed_by)
}

/// Whether both objects select the same pods. True for a wanted object without a selector.
fn same_selector(wanted: &DynamicObject, live: &DynamicObject) -> bool {
    let selector = |object: &DynamicObject| -> Option<Value> {
        ["/spec/selector", "/spec/podSelector"].iter().find_map(|path| object.data.pointer(path).cloned())
    };
    selector(wanted).is_none_or(|wanted| selector(live) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use serde_json::json;

    use super::*;

    const OURS: &str = "steersman/llsd";

    fn owner() -> Owner {
        Owner {
            kind: GroupVersionKind::gvk("llamastack.io", "v1alpha1", "LlamaStackDistribution"),
            namespace: "team-a".into(),
            name: "starter".into(),
            uid: "uid-1".into(),
            legacy: Some(Legacy {
                managed_by: "llama-stack-operator".into(),
                managers: vec!["manager".into(), "starter".into()],
            }),
        }
    }

    fn service(metadata: Value, selector: &str) -> DynamicObject {
        let mut object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "starter-service" },
            "spec": { "selector": { "app": selector } } });
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn checked(metadata: Value, selector: &str) -> Result<Claim, String> {
        let wanted = service(json!({}), "llama-stack");
        check(&owner(), OURS, &wanted, &service(metadata, selector)).map_err(|conflict| conflict.to_string())
    }

    fn controlled_by(kind: &str, name: &str, uid: &str) -> Value {
        json!([{ "apiVersion": "llamastack.io/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true }])
    }

    fn entry(manager: &str, operation: &str, subresource: &str) -> Value {
        json!({ "manager": manager, "operation": operation, "apiVersion": "v1", "subresource": subresource })
    }

    #[test]
    fn child_of_predecessor_is_awaited() {
        let ours = controlled_by("LlamaStackDistribution", "starter", "uid-1");
        assert_eq!(checked(json!({ "ownerReferences": ours }), "llama-stack"), Ok(Claim::Ours));
        let earlier = json!({ "ownerReferences": controlled_by("LlamaStackDistribution", "starter", "uid-0") });
        let refusal = check(&owner(), OURS, &service(json!({}), "x"), &service(earlier, "x")).unwrap_err();
        assert!(refusal.into_failure(ObjectId::new("Service", "team-a", "x")).transient);
    }

    #[test]
    fn child_of_other_controller_is_refused() {
        let message =
            checked(json!({ "ownerReferences": controlled_by("Widget", "other", "uid-9") }), "x").unwrap_err();
        assert_eq!(
            message,
            "it is controlled by Widget team-a/other, not by LlamaStackDistribution team-a/starter, so Steersman does not \
             change it; delete it, or give LlamaStackDistribution team-a/starter another name"
        );
    }

    #[test]
    fn uncontrolled_child_needs_legacy_or_own_mark() {
        assert!(checked(json!({}), "llama-stack").unwrap_err().contains("was not created for"));
        let labelled = json!({ "labels": { MANAGED_BY: "llama-stack-operator" } });
        assert_eq!(checked(labelled.clone(), "llama-stack"), Ok(Claim::Ours));
        assert!(checked(labelled, "somebody-else").is_err(), "the label alone is not enough");
        let foreign = json!({ "labels": { MANAGED_BY: "Helm" } });
        assert!(checked(foreign, "llama-stack").is_err());
        let restored = json!({ "managedFields": [entry(OURS, "Apply", "")] });
        assert_eq!(checked(restored, "llama-stack"), Ok(Claim::Ours));
    }

    #[test]
    fn legacy_entries_are_adopted_once_and_contested_later() {
        let ours = controlled_by("LlamaStackDistribution", "starter", "uid-1");
        for legacy in [entry("manager", "Update", ""), entry("starter", "Apply", "")] {
            let first = json!({ "ownerReferences": ours, "managedFields": [legacy] });
            assert_eq!(checked(first, "x"), Ok(Claim::Legacy));
            let again = json!({ "ownerReferences": ours, "managedFields": [entry(OURS, "Apply", ""), legacy] });
            let message = checked(again, "x").unwrap_err();
            assert!(message.starts_with("another operator is writing this object"), "{message}");
            assert!(message.contains("kubectl patch service starter-service -n team-a --type=json"), "{message}");
        }
        let status = json!({ "ownerReferences": ours, "managedFields": [entry("manager", "Update", "status")] });
        assert_eq!(checked(status, "x"), Ok(Claim::Ours), "an entry for the status does not count");
    }

    #[test]
    fn unowned_object_belongs_to_labelled_owner() {
        let checked = |metadata: Value| {
            let wanted = service(json!({ "labels": { "made-for": "starter", "team": "a" } }), "x");
            check_unowned(&owner(), OURS, &wanted, &service(metadata, "x")).map_err(|conflict| conflict.to_string())
        };
        let ours = json!([entry(OURS, "Apply", "")]);
        assert_eq!(checked(json!({ "managedFields": ours })), Ok(Claim::Ours));
        let changed = json!({ "managedFields": ours, "labels": { "made-for": "starter", "team": "b" } });
        assert_eq!(checked(changed), Ok(Claim::Ours));
        let other = json!({ "managedFields": ours, "labels": { "made-for": "other", "team": "a" } });
        assert_eq!(
            checked(other).unwrap_err(),
            "it was created for LlamaStackDistribution team-a/other, so Steersman does not change it; delete it once \
             LlamaStackDistribution team-a/other no longer needs it"
        );
    }

    #[test]
    fn unowned_object_may_be_controlled_by_owner() {
        let checked = |kind: &str, uid: &str| {
            let labels = json!({ "made-for": "starter" });
            let wanted = service(json!({ "labels": labels }), "x");
            let live = service(json!({ "labels": labels, "ownerReferences": controlled_by(kind, "x", uid) }), "x");
            check_unowned(&owner(), OURS, &wanted, &live).map_err(|conflict| conflict.to_string())
        };
        assert_eq!(checked("LlamaStackDistribution", "uid-1"), Ok(Claim::Ours));
        assert!(checked("Widget", "uid-9").unwrap_err().starts_with("it is controlled by Widget team-a/x, not by"));
    }

    #[test]
    fn deleted_child_is_awaited() {
        let leaving = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(checked(leaving, "x").unwrap_err(), OwnershipConflict::Leaving.to_string());
    }
}
