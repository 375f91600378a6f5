//! Kubeconfigs and clients for the users of the local cluster.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::pki::Identity;

/// Credentials of a user.
pub(crate) enum Credentials<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// A self-contained kubeconfig: it contains the certificates instead of their paths.
pub(crate) fn kubeconfig(
    server: &str,
    authority: &str,
    user: &str,
    credentials: &Credentials<'_>,
) -> Result<Kubeconfig> {
    const NAME: &str = "steersman-local";
    let auth_info = match credentials {
        Credentials::Certificate(identity) => json!({
            "client-certificate-data": STANDARD.encode(&identity.certificate),
            "client-key-data": STANDARD.encode(&identity.key),
        }),
        Credentials::Token(token) => json!({ "token": token }),
    };
    let cluster = json!({ "server": server, "certificate-authority-data": STANDARD.encode(authority) });
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{ "name": NAME, "cluster": cluster }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": user } }],
        "users": [{ "name": user, "user": auth_info }],
    });
    serde_json::from_value(config).context("cannot build a kubeconfig")
}

pub(crate) async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    // This fails if another part of the process has already installed a provider, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // As long as the timeout of tests, because even a handshake is slow on a busy machine.
    config.connect_timeout = Some(crate::wait::TIMEOUT);
    // The cluster runs on this machine, so a proxy of the user's environment must not be used.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Writes a kubeconfig that only its owner can read, because it contains a key.
pub(crate) fn write(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    let text = serde_saphyr::to_string(kubeconfig).context("cannot write the kubeconfig as YAML")?;
    crate::pki::write_private(path, &text)
}

pub(crate) fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))
}
