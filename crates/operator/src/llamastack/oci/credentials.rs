//! Reads the credentials with which a server's pods would pull their image, without a cache.

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;
use steersman_plan::oci::Credentials;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;

use super::ImageRequest;
use crate::installation::SecretAccess;

#[derive(Clone, Debug, Default)]
pub struct PullCredentials {
    pub credentials: Credentials,
    /// Why Secrets or the ServiceAccount could not be used. Shown only if the labels of the image cannot be read.
    pub remarks: Vec<String>,
}

pub trait CredentialSource: Send + Sync {
    fn of<'a>(&'a self, want: &'a ImageRequest) -> BoxFuture<'a, PullCredentials>;
}

pub struct ClusterCredentials {
    server: Server,
    secrets: SecretAccess,
}

impl ClusterCredentials {
    pub fn new(server: Server, secrets: SecretAccess) -> Self {
        Self { server, secrets }
    }

    async fn gather(&self, want: &ImageRequest) -> PullCredentials {
        let mut gathered = PullCredentials::default();
        let secrets: Api<Secret> = Api::namespaced(self.server.client.clone(), &want.namespace);
        for name in self.names(want, &mut gathered.remarks).await {
            if self.secrets == SecretAccess::None {
                let why = "is not read, because Steersman runs with --secrets=none";
                gathered.remarks.push(format!("the pull secret {name:?} {why}"));
                continue;
            }
            match self.server.call(secrets.get(&name)).await {
                Ok(secret) => {
                    let (type_, data) = (secret.type_.unwrap_or_default(), secret.data.unwrap_or_default());
                    let added = gathered.credentials.add(&name, &type_, &data);
                    gathered.remarks.extend(added.err().map(|bad| bad.to_string()));
                }
                Err(CallError::Answered { code: 404, .. }) => {
                    gathered.remarks.push(format!("the pull secret {name:?} does not exist"));
                }
                Err(error) => gathered.remarks.push(format!("the pull secret {name:?} cannot be read: {error}")),
            }
        }
        gathered
    }

    /// A pod with pull secrets of its own does not get those of its service account.
    async fn names(&self, want: &ImageRequest, remarks: &mut Vec<String>) -> Vec<String> {
        if !want.pull_secrets.is_empty() {
            return want.pull_secrets.clone();
        }
        let account = if want.service_account.is_empty() { "default" } else { &want.service_account };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.server.client.clone(), &want.namespace);
        match self.server.call(accounts.get(account)).await {
            Ok(found) => {
                let named = found.image_pull_secrets.unwrap_or_default();
                named.into_iter().map(|secret| secret.name).filter(|name| !name.is_empty()).collect()
            }
            Err(CallError::Answered { code: 404, .. }) => {
                remarks.push(format!("the service account {account:?} does not exist yet"));
                vec![]
            }
            Err(error) => {
                remarks.push(format!("the service account {account:?} cannot be read: {error}"));
                vec![]
            }
        }
    }
}

impl CredentialSource for ClusterCredentials {
    fn of<'a>(&'a self, want: &'a ImageRequest) -> BoxFuture<'a, PullCredentials> {
        self.gather(want).boxed()
    }
}

pub fn rules() -> Vec<Rule> {
    vec![Rule::namespaced("", "serviceaccounts", &["get"], "find the pull secrets of a server's service account")]
}

pub fn secret_rules() -> Vec<Rule> {
    vec![Rule::namespaced("", "secrets", &["get"], "read the labels of images that need credentials")]
}
