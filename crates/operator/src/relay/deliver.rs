//! Writes the output ConfigMap of a request, and only if its content differs.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, PostParams};
use kube::core::GroupVersionKind;
use steersman_api::Family;
use steersman_plan::dynamo::{names, profile_job};
use steersman_runtime::client::{CallError, Server};

use crate::relay::decide::Data;

/// Attempts that may end in a conflict with another writer.
const MAX_ATTEMPTS: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRef {
    pub name: String,
    pub namespace: String,
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputWrite {
    /// The content is up to date.
    Nothing,
    Created,
    Replaced,
}

#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("ConfigMap {0} belongs to another request of the same name; the request of this profiler no longer exists")]
    Superseded(String),
    #[error("another program keeps changing ConfigMap {0}")]
    Contended(String),
    #[error("cannot build the owner reference to the request: {0}")]
    Reference(#[from] serde_json::Error),
}

impl DeliverError {
    /// Whether a retry would have the same result.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Superseded(_) | Self::Reference(_) => true,
            // An invalid object or a missing namespace stays so. Rights may still be granted.
            Self::Call(CallError::Answered { code, .. }) => matches!(code, 400 | 404 | 405 | 413 | 415 | 422),
            Self::Call(_) | Self::Contended(_) => false,
        }
    }

    /// Whether the API server denies the write, which lasts until an administrator changes it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Call(CallError::Answered { code: 403, .. } | CallError::Unauthorized { .. }))
    }

    /// Whether RBAC denied the write. Quotas and policies answer 403 as well, but do not name the account.
    pub fn names_right(&self) -> bool {
        matches!(self, Self::Call(CallError::Answered { code: 403, message, .. })
            if message.contains("User \"") && message.contains("\" cannot "))
    }
}

impl RequestRef {
    pub fn output(&self) -> String {
        names::output(&self.name)
    }

    pub async fn deliver(&self, server: &Server, data: &Data) -> Result<OutputWrite, DeliverError> {
        let name = self.output();
        let api: Api<ConfigMap> = Api::namespaced(server.client.clone(), &self.namespace);
        for _ in 0..MAX_ATTEMPTS {
            let live = server.call(api.get_opt(&name)).await?;
            if let Some(other) = live.as_ref().and_then(|live| self.other_controller(live)) {
                self.must_be_live(server, other).await?;
            }
            let wanted = self.wanted(live.as_ref(), data)?;
            let written = match &live {
                Some(live) if *live == wanted => return Ok(OutputWrite::Nothing),
                // The resourceVersion of the read makes a concurrent write a conflict.
                Some(_) => {
                    let replaced = server.call(api.replace(&name, &PostParams::default(), &wanted)).await;
                    replaced.map(|_| OutputWrite::Replaced)
                }
                None => server.call(api.create(&PostParams::default(), &wanted)).await.map(|_| OutputWrite::Created),
            };
            match written {
                Err(CallError::Answered { code: 409, .. }) => {}
                // The ConfigMap was deleted since the read.
                Err(CallError::Answered { code: 404, .. }) if live.is_some() => {}
                written => return Ok(written?),
            }
        }
        Err(DeliverError::Contended(name))
    }

    /// The ConfigMap to write; other metadata stays.
    fn wanted(&self, live: Option<&ConfigMap>, data: &Data) -> Result<ConfigMap, DeliverError> {
        let mut wanted = live.cloned().unwrap_or_else(|| ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.output()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        });
        let labels = wanted.metadata.labels.get_or_insert_default();
        labels.extend(names::labels(&self.name, &self.namespace));
        let owner: OwnerReference = serde_json::from_value(profile_job::reference(&self.name, &self.uid))?;
        wanted.metadata.owner_references = Some(vec![owner]);
        wanted.data = Some(data.clone());
        wanted.binary_data = None;
        Ok(wanted)
    }

    /// The UID of the ConfigMap's controller, if that is not this request.
    fn other_controller<'a>(&self, live: &'a ConfigMap) -> Option<&'a str> {
        let mut owners = live.metadata.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true))?;
        (controller.uid != self.uid).then_some(controller.uid.as_str())
    }

    /// Fails unless this request still exists: the relay of a deleted request must not overwrite the output of its successor.
    async fn must_be_live(&self, server: &Server, other: &str) -> Result<(), DeliverError> {
        let kind = GroupVersionKind::gvk(Family::Dgdr.group(), "v1beta1", Family::Dgdr.kind());
        let resource = ApiResource::from_gvk_with_plural(&kind, Family::Dgdr.plural());
        let api: Api<DynamicObject> = Api::namespaced_with(server.client.clone(), &self.namespace, &resource);
        let live = server.call(api.get_metadata_opt(&self.name)).await?;
        if live.and_then(|live| live.metadata.uid).is_some_and(|uid| uid == self.uid) {
            tracing::info!(earlier_uid = other, "taking over the output of an earlier request of the same name");
            return Ok(());
        }
        Err(DeliverError::Superseded(self.output()))
    }
}
