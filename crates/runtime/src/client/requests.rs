//! Counts the requests of a client by their method and the status of the answer.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;

use crate::telemetry::metrics::Metrics;

/// Wraps the client, so that the metrics count its requests.
pub fn counted(client: &Client, metrics: Arc<Metrics>) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let send = tower::service_fn(move |request: Request<Body>| {
        let (client, metrics) = (inner.clone(), metrics.clone());
        let method = method(request.method());
        async move {
            let answer = client.send(request).await;
            metrics.requested(method, answer.as_ref().ok().map(|answer| answer.status().as_u16()));
            answer
        }
    });
    Client::new(send, namespace)
}

fn method(of: &Method) -> &'static str {
    match *of {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "other",
    }
}
