//! Adds owner references to objects that request one by annotation, and reports refused ones.

use std::collections::BTreeMap;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::json;
use steersman_plan::variant::VariantSeen;
use steersman_plan::variant::names::OWNER_ANNOTATION;
use steersman_reconcile::{Event, EventType, NamespacedName};
use steersman_runtime::client::CallError;

use super::Variants;
use super::pass::{TELLING, event_owner};
use crate::variant::observe::{MANAGER, variant_resource};

/// The status code of each refusal for which an event was sent.
pub type Untied = BTreeMap<NamespacedName, u16>;

impl Variants {
    /// Runs after the status writes, because it changes the resourceVersion. Objects that are not reached in time are
    /// retried in a later reconcile. Returns how many have to be retried.
    pub async fn tie(&self, all: &[VariantSeen], untied: &mut Untied) -> usize {
        let until = tokio::time::Instant::now() + TELLING;
        let mut refused = Untied::new();
        let mut failed = 0;
        for seen in all.iter().filter(|seen| !seen.deleting) {
            let Some((uid, owner)) = self.fleet.untied(seen) else { continue };
            if tokio::time::Instant::now() >= until {
                refused.extend(std::mem::take(untied));
                failed += 1;
                tracing::warn!("not all objects could be tied to their workloads in time; the others follow");
                break;
            }
            let resource = variant_resource();
            let NamespacedName { namespace, name } = &seen.key;
            let objects: Api<DynamicObject> = Api::namespaced_with(self.server.client.clone(), namespace, &resource);
            let wish = json!({
                "apiVersion": resource.api_version, "kind": resource.kind,
                "metadata": { "name": name, "uid": uid, "ownerReferences": [owner] },
            });
            let (ours, wish) = (PatchParams::apply(MANAGER).force(), Patch::Apply(&wish));
            let patched = tokio::time::timeout_at(until, self.server.call(objects.patch(name, &ours, &wish))).await;
            match patched.unwrap_or_else(|_| Err(self.server.too_slow(TELLING))) {
                Ok(_) => tracing::info!(namespace, name, owner = owner.name, "tied to its workload"),
                Err(CallError::Answered { code, reason, fields, message }) if is_refusal(code) => {
                    if untied.get(&seen.key) != Some(&code) {
                        let error = CallError::Answered { code, reason, fields, message };
                        tracing::warn!(namespace, name, %error, "may not be tied to its workload");
                        let owner = event_owner(&seen.key, uid);
                        let _ = tokio::time::timeout_at(until, self.recorder.publish(&owner, &note(&error))).await;
                    }
                    refused.insert(seen.key.clone(), code);
                }
                Err(error) => {
                    failed += 1;
                    tracing::warn!(namespace, name, %error, "could not be tied to its workload");
                }
            }
        }
        *untied = refused;
        failed
    }
}

/// Whether the refusal lasts until a permission or a policy changes, so that a retry is useless.
fn is_refusal(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 404 | 409 | 429)
}

fn note(error: &CallError) -> Event {
    // The message of the admission plugin OwnerReferencesPermissionEnforcement.
    let asks = matches!(error, CallError::Answered { code: 403, message, .. } if message.contains("you can't delete"));
    let right = if asks {
        "Grant Steersman's account the right to delete variantautoscalings, which this cluster asks of whoever sets owner \
         references, or"
    } else {
        "Mend what refuses it, or"
    };
    let message = format!(
        "The owner reference that annotation {OWNER_ANNOTATION} asks for is refused: {error}. {right} remove the annotation"
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
        let asked = "The owner reference that annotation steersman.dev/owner-reference asks for is refused: the API server \
                     answered 403: ";
        for (message, remedy) in [
            (
                "cannot set an ownerRef on a resource you can't delete: , <nil>",
                "Grant Steersman's account the right to delete variantautoscalings, which this cluster asks of whoever sets \
                 owner references, or remove the annotation",
            ),
            ("denied by a policy", "Mend what refuses it, or remove the annotation"),
        ] {
            let error = CallError::Answered {
                code: 403,
                reason: String::new(),
                fields: Box::default(),
                message: message.to_owned(),
            };
            assert_eq!(note(&error).message, format!("{asked}{message}. {remedy}"));
        }
    }
}
