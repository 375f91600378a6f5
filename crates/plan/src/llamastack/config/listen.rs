//! The port and the certificates of the server.

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_reconcile::path;

use super::draft::{self, Draft};
use crate::llamastack::fields;

const DEFAULT_PORT: i32 = 8321;
/// The server rejects lower ports in its configuration.
const LOWEST_PORT: i32 = 1024;

pub const TLS_PATH: &str = "/etc/llama-stack-tls";
pub const TLS_CERT: &str = "/etc/llama-stack-tls/tls.crt";
pub const TLS_KEY: &str = "/etc/llama-stack-tls/tls.key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    pub port: i32,
    /// The Secret with `tls.crt` and `tls.key`, mounted at `TLS_PATH`. None: plain HTTP.
    pub tls_secret: Option<String>,
}

impl Listen {
    pub fn of(spec: &LlamaStackDistributionSpec) -> Self {
        let tls = spec.networking.as_ref().and_then(|networking| networking.tls.as_ref());
        let enabled = tls.filter(|tls| tls.enabled == Some(true));
        Self { port: port(spec), tls_secret: enabled.and_then(|tls| tls.secret_name.clone()) }
    }
}

pub(super) fn port(spec: &LlamaStackDistributionSpec) -> i32 {
    spec.networking.as_ref().and_then(|networking| networking.port).unwrap_or(DEFAULT_PORT)
}

/// Other keys that the base has in `server` stay.
pub(super) fn set(draft: &mut Draft<'_>) {
    let listen = Listen::of(draft.spec);
    if (1..LOWEST_PORT).contains(&listen.port) {
        draft.refuse(
            path!(spec.networking.port),
            format!("the server refuses ports below {LOWEST_PORT}, and {} is one", listen.port),
            "Use a higher port; the Ingress can offer another one to the outside.",
        );
    }
    let mut server = draft::take(&mut draft.config, "server");
    server.insert("port".to_owned(), Value::from(listen.port));
    if listen.tls_secret.is_some() {
        server.insert("tls_certfile".to_owned(), Value::from(TLS_CERT));
        server.insert("tls_keyfile".to_owned(), Value::from(TLS_KEY));
    }
    if let Some(workers) = fields::workers(draft.spec).filter(|_| !draft.server.before(0, 4)) {
        server.insert("workers".to_owned(), Value::from(workers));
    }
    draft.config.insert("server".to_owned(), Value::Object(server));
}
