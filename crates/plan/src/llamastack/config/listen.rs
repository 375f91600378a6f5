//! The port and the certificates of the server.

use serde_json::Value;
use steersman_reconcile::path;

use super::draft::{self, Draft};
use crate::llamastack::fields;

/// The server rejects lower ports in its configuration.
const LOWEST_PORT: i32 = 1024;

pub const TLS_PATH: &str = "/etc/llama-stack-tls";
pub const TLS_CERT: &str = "/etc/llama-stack-tls/tls.crt";
pub const TLS_KEY: &str = "/etc/llama-stack-tls/tls.key";

/// Other keys that the base has in `server` stay.
pub(super) fn set(draft: &mut Draft<'_>) {
    let port = fields::port(draft.spec);
    if (1..LOWEST_PORT).contains(&port) {
        draft.refuse(
            path!(spec.networking.port),
            format!("the port is {port}, but the server refuses ports below {LOWEST_PORT}"),
            "Use a port from 1024 to 65535; an Ingress can serve it on another port.",
        );
    }
    let mut server = draft::take(&mut draft.config, "server");
    server.insert("port".to_owned(), Value::from(port));
    if fields::certificate(draft.spec).is_some() {
        server.insert("tls_certfile".to_owned(), Value::from(TLS_CERT));
        server.insert("tls_keyfile".to_owned(), Value::from(TLS_KEY));
    }
    if let Some(workers) = fields::workers(draft.spec).filter(|_| !draft.server.before(0, 4)) {
        server.insert("workers".to_owned(), Value::from(workers));
    }
    draft.config.insert("server".to_owned(), Value::Object(server));
}
