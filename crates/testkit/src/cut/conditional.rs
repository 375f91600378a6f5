//! A client of which calls fail depending on the request instead of their number.

use http::Request;
use kube::Client;
use kube::client::Body;

use super::{connection_error, error_response};

/// The fault of a call that does not reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection breaks.
    Breaks,
    /// The call never returns.
    Hangs,
    /// The response has this status code.
    Answered(u16),
}

/// Wraps a client. `fate` returns the fault of a request, or `None` to send it as usual.
pub fn fated(client: &Client, fate: impl Fn(&Request<Body>) -> Option<Fate> + Send + 'static) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fate) = (inner.clone(), fate(&request));
        async move {
            match fate {
                None => Ok(client.send(request).await?),
                Some(Fate::Breaks) => Err(connection_error("the connection breaks")),
                Some(Fate::Hangs) => std::future::pending().await,
                Some(Fate::Answered(code)) => Ok(error_response(code)?),
            }
        }
    });
    Client::new(service, namespace)
}
