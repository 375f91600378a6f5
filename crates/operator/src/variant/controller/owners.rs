//! Adds owner references to objects that request one by annotation, and reports refused ones.

use std::collections::BTreeMap;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;
use steersman_plan::variant::ObservedVariant;
use steersman_plan::variant::names::OWNER_ANNOTATION;
use steersman_reconcile::{Event, EventType, NamespacedName};
use steersman_runtime::client::CallError;

use super::FleetController;
use super::reconcile::{EVENT_TIME_LIMIT, event_owner};
use crate::variant::observe::{MANAGER, variant_resource};

/// Objects whose owner reference the API server refuses, with the status code. An event was sent for each.
pub type RefusedOwners = BTreeMap<NamespacedName, u16>;

impl FleetController {
    /// Runs after the status writes, because it changes the resourceVersion. Objects that are not reached in time are
    /// retried in a later reconcile. Returns how many have to be retried.
    pub async fn add_owner_references(&self, all: &[ObservedVariant], reported: &mut RefusedOwners) -> usize {
        let until = tokio::time::Instant::now() + EVENT_TIME_LIMIT;
        let mut refused = RefusedOwners::new();
        let mut failed = 0;
        for variant in all.iter().filter(|variant| !variant.deleting) {
            let Some((uid, owner)) = self.fleet.missing_owner(variant) else { continue };
            if tokio::time::Instant::now() >= until {
                refused.extend(std::mem::take(reported));
                failed += 1;
                tracing::warn!(
                    "no time left to add owner references; the remaining objects follow in the next reconcile"
                );
                break;
            }
            let resource = variant_resource();
            let NamespacedName { namespace, name } = &variant.key;
            let objects: Api<DynamicObject> = Api::namespaced_with(self.server.client.clone(), namespace, &resource);
            let desired = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "metadata": { "name": name, "uid": uid, "ownerReferences": [owner] },
            });
            let (params, desired) = (PatchParams::apply(MANAGER).force(), Patch::Apply(&desired));
            let patched =
                tokio::time::timeout_at(until, self.server.call(objects.patch(name, &params, &desired))).await;
            match patched.unwrap_or_else(|_| Err(self.server.too_slow(EVENT_TIME_LIMIT))) {
                Ok(_) => {
                    tracing::info!(namespace, name, owner = owner.name, "owner reference to the scale target added")
                }
                Err(CallError::Answered { code, reason, fields, message }) if is_refusal(code) => {
                    if reported.get(&variant.key) != Some(&code) {
                        let error = CallError::Answered { code, reason, fields, message };
                        tracing::warn!(namespace, name, %error, "owner reference refused");
                        let owner = event_owner(&variant.key, uid);
                        let _ =
                            tokio::time::timeout_at(until, self.recorder.publish(&owner, &refusal_event(&error))).await;
                    }
                    refused.insert(variant.key.clone(), code);
                }
                Err(error) => {
                    failed += 1;
                    tracing::warn!(namespace, name, %error, "owner reference could not be added");
                }
            }
        }
        *reported = refused;
        failed
    }
}

/// Whether the API server would refuse the same request again until a permission, a policy or the object changes, so
/// that a retry is useless.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 404 | 409 | 429)
}

fn refusal_event(error: &CallError) -> Event {
    // The message of the admission plugin OwnerReferencesPermissionEnforcement.
    let enforced =
        matches!(error, CallError::Answered { code: 403, message, .. } if message.contains("you can't delete"));
    let remedy = if enforced {
        "Allow Steersman's service account to delete variantautoscalings (the admission plugin \
         OwnerReferencesPermissionEnforcement requires it), or"
    } else {
        "Allow it in the policy that refuses it, or"
    };
    let message = format!(
        "The API server refuses the owner reference that annotation {OWNER_ANNOTATION} requests: {error}. {remedy} remove \
         the annotation"
    );
    Event { type_: EventType::Warning, reason: "OwnerReferenceRefused", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_permanent_errors_are_refusals() {
        for (code, expected) in [(403, true), (422, true), (404, false), (409, false), (429, false), (500, false)] {
            assert_eq!(is_refusal(code), expected, "{code}");
        }
    }

    #[test]
    fn missing_right_for_owner_reference_is_named() {
        let cause = "The API server refuses the owner reference that annotation steersman.dev/owner-reference requests: the API \
                     server answered 403: ";
        for (message, remedy) in [
            (
                "cannot set an ownerRef on a resource you can't delete: , <nil>",
                "Allow Steersman's service account to delete variantautoscalings (the admission plugin \
                 OwnerReferencesPermissionEnforcement requires it), or remove the annotation",
            ),
            ("denied by a policy", "Allow it in the policy that refuses it, or remove the annotation"),
        ] {
            let error = CallError::Answered {
                code: 403,
                reason: String::new(),
                fields: Box::default(),
                message: message.to_owned(),
            };
            assert_eq!(refusal_event(&error).message, format!("{cause}{message}. {remedy}"));
        }
    }
}
