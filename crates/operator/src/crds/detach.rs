//! Runs `steersman crds --detach`, after which every object can be read and deleted without an operator.
//!
//! The objects of all CRDs are migrated before the first CRD is detached: while objects cannot be converted, none is.

use kube::ResourceExt;
use kube::api::{Api, DynamicObject, PartialObjectMeta, Patch, PatchParams};
use serde_json::{Value, json};
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;

use crate::crds::live::{self, LiveCrd};
use crate::crds::migrate::{self, Migration, migrate};
use crate::crds::objects::{Pages, resource};
use crate::crds::target::{self, TargetFlags};
use crate::crds::{CrdsError, MANAGER, WEBHOOK_SERVICE, wanted};

const NEEDED_PERMISSIONS: &str = "get and patch customresourcedefinitions and customresourcedefinitions/status of \
                      apiextensions.k8s.io, and list and patch the objects in them";

const MAX_ATTEMPTS: usize = 5;

/// Finalizer that NVIDIA's operator sets on every request. Only an operator removes it: without one the object could never
/// be deleted. NVIDIA's operator sets it again if it runs.
const FINALIZER: &str = "nvidia.com/finalizer";

/// Group of the objects that may have the finalizer.
const FINALIZER_GROUP: &str = "nvidia.com";

/// The access that the command needs for a family, for the chart's hook.
pub fn rules(family: Family) -> Vec<Rule> {
    let crd = |resource, verbs, why| Rule {
        group: "apiextensions.k8s.io",
        resource,
        names: vec![family.crd_name()],
        verbs,
        namespaced: false,
        why,
    };
    let object = |resource, verbs, why| Rule::namespaced(family.group(), resource, verbs, why);
    let store = "store all objects in the storage version";
    let mut rules = vec![
        crd("customresourcedefinitions", &["get", "patch"], "detach the CRDs from the conversion webhook"),
        crd("customresourcedefinitions/status", &["patch"], "remove older versions from status.storedVersions"),
        object(family.plural(), &["get", "list"], store),
        object(migrate::status(family), &["patch"], store),
    ];
    if family.group() == FINALIZER_GROUP {
        rules.push(object(family.plural(), &["patch"], "remove the finalizer of NVIDIA's operator"));
    }
    rules
}

/// Detaches the CRDs of `families`; an empty list means all. The converter named in `flags` counts as ours.
pub async fn detach(
    server: &Server,
    families: &[Family],
    flags: &TargetFlags,
    say: &mut dyn FnMut(&str),
) -> Result<(), CrdsError> {
    let mut attached = Vec::new();
    for family in wanted(families) {
        match reason_to_skip(*family, read(server, *family).await?.as_ref(), flags) {
            None => attached.push(*family),
            Some(reason) => say(&format!("{}: {reason}", family.crd_name())),
        }
    }
    for family in &attached {
        if let Some(done) = migrate_all(server, *family).await? {
            say(&format!("{}: {done}", family.crd_name()));
        }
    }
    for family in attached {
        if let released @ 1.. = release(server, family).await? {
            say(&format!("{}: removed the finalizer {FINALIZER} from {released} objects", family.crd_name()));
        }
        say(&format!("{}: {}", family.crd_name(), detach_one(server, family).await?));
    }
    Ok(())
}

async fn read(server: &Server, family: Family) -> Result<Option<LiveCrd>, CrdsError> {
    live::read(server, family).await.map_err(|cause| failed(family, cause))
}

fn failed(family: Family, cause: CallError) -> CrdsError {
    CrdsError::Call { doing: format!("detach {}", family.crd_name()), permissions: NEEDED_PERMISSIONS, cause }
}

/// None if the CRD names our converter, and is to be detached.
fn reason_to_skip(family: Family, live: Option<&LiveCrd>, flags: &TargetFlags) -> Option<String> {
    let Some(live) = live else { return Some("not installed".to_owned()) };
    let Some(client) = live.converter() else { return Some("has no conversion webhook; nothing to detach".to_owned()) };
    let ours = match &flags.target {
        Some(target) => target::same(target, &client),
        None => {
            let named = client.service.as_ref().is_some_and(|service| service.name == WEBHOOK_SERVICE);
            named || live.is_chosen()
        }
    };
    if !ours {
        let server = target::describe(&client);
        return Some(format!(
            "skipped: its conversion webhook is {server}, not Steersman's; if it is Steersman's, name it with --webhook-service \
             and --webhook-namespace, or with --webhook-url"
        ));
    }
    if live.storage() != family.storage_version() {
        let storage = live.storage();
        return Some(format!(
            "skipped: its storage version is {storage}, so it is not Steersman's CRD; run `steersman crds --apply` first"
        ));
    }
    None
}

/// Brings every object into the storage version, which needs no conversion.
async fn migrate_all(server: &Server, family: Family) -> Result<Option<String>, CrdsError> {
    let (crd, storage) = (family.crd_name(), family.storage_version());
    match migrate(server, family).await {
        Ok(Migration::NotNeeded) => Ok(None),
        Ok(Migration::Done { objects, from }) => {
            Ok(Some(format!("{objects} objects are stored as {storage}, none as {}", from.join(" or "))))
        }
        Ok(Migration::Incomplete(left)) => {
            Err(CrdsError::Incomplete { crd, storage, count: left.count, examples: left.to_string() })
        }
        Err(cause) => Err(CrdsError::Migrate { cause }),
    }
}

/// Removes the finalizer that no other program would remove, and returns from how many objects.
async fn release(server: &Server, family: Family) -> Result<usize, CrdsError> {
    if family.group() != FINALIZER_GROUP {
        return Ok(0);
    }
    let mut released = 0;
    let mut pages = Pages::new(server, family, vec![family.storage_version()]);
    while let Some(page) = pages.next().await.map_err(|cause| failed(family, cause))? {
        for object in page.objects.into_iter().filter(is_held) {
            released += usize::from(release_one(server, family, object).await?);
        }
    }
    Ok(released)
}

fn is_held(object: &PartialObjectMeta<DynamicObject>) -> bool {
    object.finalizers().iter().any(|name| name == FINALIZER)
}

/// Returns whether the object was changed.
async fn release_one(
    server: &Server,
    family: Family,
    mut object: PartialObjectMeta<DynamicObject>,
) -> Result<bool, CrdsError> {
    let resource = resource(family, family.storage_version());
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &namespace, &resource);
    for _ in 0..MAX_ATTEMPTS {
        let kept: Vec<_> = object.finalizers().iter().filter(|name| *name != FINALIZER).collect();
        let patch = json!({ "metadata": { "resourceVersion": object.resource_version(), "finalizers": kept } });
        match server.call(api.patch_metadata(&name, &PatchParams::apply(MANAGER), &Patch::Merge(patch))).await {
            Ok(_) => return Ok(true),
            Err(CallError::Answered { code: 404, .. }) => return Ok(false),
            // Conflict: most likely the operator still runs and has just written the status.
            Err(CallError::Answered { code: 409, .. }) => {}
            Err(cause) => return Err(failed(family, cause)),
        }
        match server.call(api.get_metadata_opt(&name)).await.map_err(|cause| failed(family, cause))? {
            Some(now) if is_held(&now) => object = now,
            _ => return Ok(false),
        }
    }
    Err(CrdsError::Busy { crd: family.crd_name() })
}

/// Detaches the CRD in a single write.
async fn detach_one(server: &Server, family: Family) -> Result<String, CrdsError> {
    let crd = family.crd_name();
    for _ in 0..MAX_ATTEMPTS {
        let Some(live) = read(server, family).await? else { return Ok("not installed".to_owned()) };
        if !live.outdated().is_empty() {
            return Err(CrdsError::Busy { crd });
        }
        let storage = live.storage();
        let mut unserved = Vec::new();
        let mut versions = live.versions().to_vec();
        for version in versions.iter_mut().filter(|version| version["storage"] != true && version["served"] == true) {
            unserved.push(version["name"].as_str().unwrap_or_default().to_owned());
            version["served"] = Value::Bool(false);
        }
        let patch = json!({
            "metadata": { "resourceVersion": live.resource_version() },
            "spec": { "conversion": { "strategy": "None", "webhook": null }, "versions": versions },
        });
        match server.call(live::api(server).patch(crd, &PatchParams::apply(MANAGER), &Patch::Merge(patch))).await {
            Ok(_) => {
                let gone = unserved.join(" and ");
                return Ok(format!("detached; served as {storage} only, no longer as {gone}"));
            }
            Err(CallError::Answered { code: 409, .. }) => {}
            Err(cause) => return Err(failed(family, cause)),
        }
    }
    Err(CrdsError::Busy { crd })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(conversion: &Value, storage: &str) -> LiveCrd {
        let versions: Vec<_> = ["v1alpha1", "v1alpha2"]
            .map(|name| json!({ "name": name, "served": true, "storage": name == storage }))
            .into();
        let object = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "x" }, "spec": { "versions": versions, "conversion": conversion } });
        LiveCrd { object: serde_json::from_value(object).unwrap() }
    }

    fn by(service: &str) -> Value {
        let client = json!({ "service": { "namespace": "n", "name": service, "path": "/convert", "port": 443 } });
        json!({ "strategy": "Webhook", "webhook": { "clientConfig": client } })
    }

    fn reason(live: Option<&LiveCrd>, flags: &TargetFlags) -> String {
        reason_to_skip(Family::Llsd, live, flags).unwrap_or_else(|| "attached".to_owned())
    }

    #[test]
    fn only_own_conversion_is_detached() {
        let nothing = TargetFlags::default();
        assert_eq!(reason(None, &nothing), "not installed");
        assert_eq!(reason(Some(&live(&by(WEBHOOK_SERVICE), "v1alpha2")), &nothing), "attached");
        let none = json!({ "strategy": "None" });
        assert_eq!(reason(Some(&live(&none, "v1alpha2")), &nothing), "has no conversion webhook; nothing to detach");
        let foreign = live(&by("webhook-service"), "v1alpha2");
        assert!(
            reason(Some(&foreign), &nothing)
                .starts_with("skipped: its conversion webhook is Service n/webhook-service,")
        );
        let named = TargetFlags { target: foreign.converter(), bundle: None };
        assert_eq!(reason(Some(&foreign), &named), "attached");
        let older = reason(Some(&live(&by(WEBHOOK_SERVICE), "v1alpha1")), &nothing);
        assert!(older.starts_with("skipped: its storage version is v1alpha1"), "{older}");
    }
}
