//! A client of which calls fail depending on the request instead of their number.

use http::Request;
use kube::Client;
use kube::client::Body;

use super::{connection_error, error_response};

/// The fault of a call that does not reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The connection breaks.
    ConnectionReset,
    /// The call never returns.
    NoResponse,
    /// The response has this status code.
    Status(u16),
}

/// Wraps a client. `fate` returns the fault of a request, or `None` to send it as usual.
pub fn inject_by_request(
    client: &Client,
    fault_of: impl Fn(&Request<Body>) -> Option<RequestFault> + Send + 'static,
) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fault) = (inner.clone(), fault_of(&request));
        async move {
            match fault {
                None => Ok(client.send(request).await?),
                Some(RequestFault::ConnectionReset) => Err(connection_error("the connection breaks")),
                Some(RequestFault::NoResponse) => std::future::pending().await,
                Some(RequestFault::Status(code)) => Ok(error_response(code)?),
            }
        }
    });
    Client::new(service, namespace)
}
