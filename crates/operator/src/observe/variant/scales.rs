//! Workloads of kinds that are not watched, by their scale subresource.
//! Comes in: kind, namespace and name; goes out: how many replicas there are, or that there is no such workload.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery;
use steersman_plan::preflight::Answer;
use steersman_plan::variant::TargetSeen;

use crate::client::{CallError, Server};
use crate::controllers::Place;

/// Which resource a kind is does not change while its API is served.
#[derive(Default)]
pub struct Scales {
    known: Mutex<BTreeMap<(String, String, String), ApiResource>>,
}

impl Scales {
    /// Ready replicas are not part of a scale: whoever knows the pods counts them.
    pub async fn look(&self, server: &Server, kind: &GroupVersionKind, place: &Place) -> Answer<Option<TargetSeen>> {
        let resource = match self.resource(server, kind).await {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                return Answer::Unknown(format!(
                    "the cluster does not serve kind {} of {}; check kind, with its capital letters, and apiVersion in \
                     spec.scaleTargetRef",
                    kind.kind,
                    kind.api_version()
                ));
            }
            Err(error) => return Answer::Unknown(error.to_string()),
        };
        let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &place.0, &resource);
        match server.call(api.get_scale(&place.1)).await {
            Ok(scale) => Answer::Known(Some(TargetSeen {
                replicas: scale.spec.and_then(|spec| spec.replicas),
                status_replicas: scale.status.map(|status| status.replicas),
                ..TargetSeen::default()
            })),
            Err(CallError::Answered { code: 404, message }) if message.contains(&place.1) => Answer::Known(None),
            Err(CallError::Answered { code: 404, .. }) => {
                Answer::Unknown(format!("kind {} has no scale subresource; name a workload that has one", kind.kind))
            }
            Err(error @ CallError::Answered { code: 403, .. }) => {
                let right = format!("{}/scale of group {:?}", resource.plural, kind.group);
                Answer::Unknown(format!("{error}; grant Steersman's account the right to get {right}"))
            }
            Err(error) => Answer::Unknown(error.to_string()),
        }
    }

    async fn resource(&self, server: &Server, kind: &GroupVersionKind) -> Result<Option<ApiResource>, CallError> {
        let key = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let found = server.call(async {
            match discovery::pinned_kind(&server.client, kind).await {
                Err(kube::Error::Discovery(_)) => Ok(None),
                found => found.map(|(resource, _)| Some(resource)),
            }
        });
        match found.await {
            Ok(Some(found)) => {
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
                Ok(Some(found))
            }
            Ok(None) | Err(CallError::Answered { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
