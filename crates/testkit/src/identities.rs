//! Clients of named users, by certificate, and of service accounts, by a token of the API server. Both only have the
//! permissions that RBAC grants.

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;

use crate::client::{self, Credentials};
use crate::cluster::Cluster;

impl Cluster {
    /// A client of the user `name`. Without a role binding it has the permissions of every authenticated user.
    pub async fn user(&self, name: &str) -> Result<Client> {
        client::client(self.kubeconfig_for(name, None)?).await
    }

    /// A client of the service account `name` in `namespace`.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Client> {
        client::client(self.service_account_config(namespace, name).await?).await
    }

    /// Writes a kubeconfig of the service account, for programs outside the cluster.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<std::path::PathBuf> {
        let path = self.folder.join(format!("{namespace}.{name}.kubeconfig"));
        client::write(&path, &self.service_account_config(namespace, name).await?)?;
        Ok(path)
    }

    /// Writes a kubeconfig of the user `name`.
    pub fn user_kubeconfig(&self, name: &str) -> Result<std::path::PathBuf> {
        let path = self.folder.join(format!("user.{name}.kubeconfig"));
        client::write(&path, &self.kubeconfig_for(name, None)?)?;
        Ok(path)
    }

    pub(crate) async fn service_account_config(&self, namespace: &str, name: &str) -> Result<Kubeconfig> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let spec = TokenRequestSpec { expiration_seconds: Some(24 * 3600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let issued = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("cannot get a token of the service account {namespace}/{name}"))?;
        let token = issued.status.context("the API server answered a token request without a token")?.token;
        self.kubeconfig_with(&format!("system:serviceaccount:{namespace}:{name}"), &Credentials::Token(&token))
    }
}
