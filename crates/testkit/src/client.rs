//! Kubeconfigs and clients for the local cluster. In goes who the caller is; out comes a client that the API server knows
//! under that name.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;

use crate::pki::Identity;

/// How a caller proves who it is.
pub(crate) enum Credentials<'a> {
    Certificate(&'a Identity),
    Token(&'a str),
}

/// A self-contained kubeconfig: certificates are in it, not beside it.
pub(crate) fn kubeconfig(
    server: &str,
    authority: &str,
    user: &str,
    credentials: &Credentials<'_>,
) -> Result<Kubeconfig> {
    const NAME: &str = "steersman-local";
    let proof = match credentials {
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
        "users": [{ "name": user, "user": proof }],
    });
    serde_json::from_value(config).context("cannot build a kubeconfig")
}

pub(crate) async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    // Whoever asks first sets the provider; that another part of the process was quicker is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    // As long as tests wait at most: on a busy machine even a handshake takes its time.
    config.connect_timeout = Some(crate::wait::LIMIT);
    // The cluster is on this machine, whatever proxy the user's environment names.
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Writes the kubeconfig readable by its owner alone: it holds a key.
pub(crate) fn write(path: &Path, kubeconfig: &Kubeconfig) -> Result<()> {
    let text = serde_saphyr::to_string(kubeconfig).context("cannot write the kubeconfig as YAML")?;
    crate::pki::write_private(path, &text)
}

pub(crate) fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))
}
