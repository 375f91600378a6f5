//! Whether the cluster serves an API: of a custom resource that must be served, or of one that clusters may lack.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::runtime::watcher;

use super::relist::{RELIST_INTERVAL, with_restarts};
use crate::client::{self, CallError, Server};
use crate::rbac::Rule;
use crate::resource::CustomResource;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Recheck interval while the CRDs cannot be watched.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// An API that clusters may lack.
pub struct Optional {
    pub group: &'static str,
    pub version: &'static str,
    /// Name of the CRD. OpenShift may serve the API without this CRD, by an API server of its own.
    pub crd: &'static str,
}

/// The access that this module needs, for the CRDs of these names.
pub fn rules(crds: Vec<&'static str>) -> Vec<Rule> {
    vec![Rule {
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        names: crds,
        verbs: &["list", "watch"],
        namespaced: false,
        why: "start a controller as soon as its CRD is installed, and detect whether optional APIs are served",
    }]
}

/// Waits until the stored version is served. Until then the log states what to do. Without the right to read the CRD, which an
/// operator for one namespace lacks, discovery decides.
pub async fn until_served(server: &Server, resource: &CustomResource) {
    until_served_in_lists(server, resource, RELIST_INTERVAL).await;
}

async fn until_served_in_lists(server: &Server, resource: &CustomResource, interval: Duration) {
    let api = Optional { group: resource.group, version: resource.version, crd: resource.crd_name };
    let mut logged = String::new();
    loop {
        let mut changes = pin!(changes(server, resource.crd_name, interval));
        while let Some(change) = changes.next().await {
            let broken = change.is_err();
            if broken && discovered(server, &api).await == Some(true) {
                return;
            }
            let missing = match change {
                Ok(crd) => missing(resource, crd.as_ref()),
                Err(error) => {
                    Some(format!("cannot read the CRD {}: {}", resource.crd_name, client::watch_error_cause(&error)))
                }
            };
            let Some(missing) = missing else { return };
            // A repeated cause is logged once.
            if missing != logged {
                tracing::warn!(controller = %resource, missing, "controller is waiting for its CRD");
                logged = missing;
            }
            // A broken watch would restart at once, and break again at once.
            if broken {
                break;
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Reports whether an API is served: once at the start and at each change, for as long as it is polled.
pub async fn follow(server: &Server, api: &Optional, report: impl FnMut(bool)) {
    follow_lists(server, api, RELIST_INTERVAL, report).await;
}

async fn follow_lists(server: &Server, api: &Optional, interval: Duration, mut report: impl FnMut(bool)) {
    let mut reported = None;
    loop {
        let mut changes = pin!(changes(server, api.crd, interval));
        let mut pause = RETRY_INTERVAL;
        while let Some(change) = changes.next().await {
            // The CRD decides if there is one, because discovery may lag behind it.
            let served = match &change {
                Ok(Some(crd)) => Some(serves(crd, api.version)),
                _ => discovered(server, api).await,
            };
            let Some(served) = served else { break };
            if reported != Some(served) {
                reported = Some(served);
                report(served);
            }
            // Discovery may lag behind the removal of a CRD, and no event corrects it.
            if change.is_err() || (served && matches!(change, Ok(None))) {
                pause = RECHECK_INTERVAL;
                break;
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// The CRD of this name at the start, after each change and after each list. `None`: there is none.
fn changes(
    server: &Server,
    crd: &'static str,
    interval: Duration,
) -> impl Stream<Item = watcher::Result<Option<CustomResourceDefinition>>> + use<> {
    let crds: Api<CustomResourceDefinition> = Api::all(server.client.clone());
    with_restarts(interval, move || watcher::watch_object(crds.clone(), crd))
}

/// `None` if unknown, for example while an aggregated API server does not respond.
async fn discovered(server: &Server, api: &Optional) -> Option<bool> {
    let Optional { group, version, crd } = api;
    // A CRD is called by its resource and its group. Others may serve the same group.
    let plural = crd.split('.').next();
    match server.call(server.client.list_api_group_resources(&format!("{group}/{version}"))).await {
        Ok(list) => Some(list.resources.iter().any(|resource| Some(resource.name.as_str()) == plural)),
        Err(CallError::Answered { code: 403 | 404, .. }) => Some(false),
        Err(error) => {
            tracing::debug!(group, %error, "cannot determine whether an API is served");
            None
        }
    }
}

fn serves(crd: &CustomResourceDefinition, version: &str) -> bool {
    crd.spec.versions.iter().any(|known| known.name == version && known.served) && established(crd)
}

fn established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|known| known.type_ == "Established" && known.status == "True")
}

fn missing(resource: &CustomResource, crd: Option<&CustomResourceDefinition>) -> Option<String> {
    let (name, version) = (resource.crd_name, resource.version);
    let Some(crd) = crd else {
        return Some(format!("the CRD {name} is not installed; install it with: steersman crds --apply"));
    };
    let Some(stored) = crd.spec.versions.iter().find(|known| known.name == version && known.served) else {
        return Some(format!("the CRD {name} does not serve {version}; replace it with: steersman crds --apply"));
    };
    if !stored.storage {
        return Some(format!("the CRD {name} does not store {version}; replace it with: steersman crds --apply"));
    }
    (!established(crd)).then(|| format!("the CRD {name} is not established yet; see: kubectl describe crd {name}"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Short enough for a test.
    const INTERVAL: Duration = Duration::from_millis(20);

    const OPTIONAL: Optional = Optional { group: "llamastack.io", version: "v1alpha2", crd: RESOURCE.crd_name };

    const RESOURCE: CustomResource = CustomResource {
        short_name: "llsd",
        group: "llamastack.io",
        version: "v1alpha2",
        kind: "LlamaStackDistribution",
        plural: "llamastackdistributions",
        crd_name: "llamastackdistributions.llamastack.io",
    };

    fn crd(versions: Value, conditions: Value) -> CustomResourceDefinition {
        serde_json::from_value(
            json!({ "spec": { "group": "llamastack.io", "scope": "Namespaced", "names": { "kind": "K",
            "plural": "ks" }, "versions": versions }, "status": { "conditions": conditions } }),
        )
        .unwrap()
    }

    #[test]
    fn stored_version_must_be_served() {
        let version =
            |name: &str, served: bool, storage: bool| json!({ "name": name, "served": served, "storage": storage });
        let established = json!([{ "type": "Established", "status": "True" }]);
        let cause = |crd: Option<CustomResourceDefinition>| missing(&RESOURCE, crd.as_ref()).unwrap_or_default();
        assert!(
            cause(None).starts_with("the CRD llamastackdistributions.llamastack.io is not installed; install it with")
        );
        let old = crd(json!([version("v1alpha1", true, true)]), established.clone());
        assert!(cause(Some(old)).contains("does not serve v1alpha2"));
        let unserved = crd(json!([version("v1alpha2", false, true)]), established.clone());
        assert!(cause(Some(unserved)).contains("does not serve v1alpha2"));
        let other =
            crd(json!([version("v1alpha1", true, true), version("v1alpha2", true, false)]), established.clone());
        assert!(cause(Some(other)).contains("does not store v1alpha2"));
        let new = crd(json!([version("v1alpha2", true, true)]), json!([]));
        assert!(cause(Some(new)).contains("is not established yet"));
        assert_eq!(cause(Some(crd(json!([version("v1alpha2", true, true)]), established))), "");
    }

    /// A client whose lists contain each of these CRDs in turn, then the last one, and whose watches stay silent.
    fn server_with_silent_watches(crds: Vec<Option<CustomResourceDefinition>>) -> Server {
        let lists = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (crds, lists) = (crds.clone(), lists.clone());
            async move {
                let uri = request.uri();
                if uri.query().is_some_and(|query| query.contains("watch=")) {
                    std::future::pending::<()>().await;
                }
                let answer = if uri.path().ends_with("/customresourcedefinitions") {
                    let number = lists.fetch_add(1, Ordering::SeqCst).min(crds.len() - 1);
                    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
                        "metadata": { "resourceVersion": "900" }, "items": Vec::from_iter(crds[number].clone()) })
                } else {
                    json!({ "kind": "APIResourceList", "groupVersion": "llamastack.io/v1alpha2", "resources": [] })
                };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        Server::new(Client::new(service, "default"), String::new(), Duration::from_secs(5))
    }

    fn served_crd() -> CustomResourceDefinition {
        let version = json!({ "name": "v1alpha2", "served": true, "storage": true });
        let mut crd = crd(json!([version]), json!([{ "type": "Established", "status": "True" }]));
        crd.metadata.name = Some(RESOURCE.crd_name.to_owned());
        crd
    }

    #[tokio::test]
    async fn silent_watch_does_not_hide_installed_crd() {
        let server = server_with_silent_watches(vec![None, Some(served_crd())]);
        let served = until_served_in_lists(&server, &RESOURCE, INTERVAL);
        tokio::time::timeout(Duration::from_secs(20), served).await.unwrap();
    }

    #[tokio::test]
    async fn silent_watch_does_not_hide_removed_crd() {
        let server = server_with_silent_watches(vec![Some(served_crd()), None]);
        let mut reports = Vec::new();
        let follow = follow_lists(&server, &OPTIONAL, INTERVAL, |served| reports.push(served));
        // The calls never end.
        let _ = tokio::time::timeout(Duration::from_secs(2), follow).await;
        assert_eq!(reports, [true, false]);
    }
}
