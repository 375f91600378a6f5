//! A client whose calls fail by what they are, not by their number.
//! Comes in: a client, and what shall become of a call; goes out: the same client with those flaws.

use http::Request;
use kube::Client;
use kube::client::Body;

use super::{answer, broken};

/// What becomes of a call that does not reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The connection breaks.
    Breaks,
    /// There is never an answer.
    Hangs,
    /// This code is the answer.
    Answered(u16),
}

/// None: the call is made as ever.
pub fn fated(client: &Client, fate: impl Fn(&Request<Body>) -> Option<Fate> + Send + 'static) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fate) = (inner.clone(), fate(&request));
        async move {
            match fate {
                None => Ok(client.send(request).await?),
                Some(Fate::Breaks) => Err(broken("the connection breaks")),
                Some(Fate::Hangs) => std::future::pending().await,
                Some(Fate::Answered(code)) => Ok(answer(code)?),
            }
        }
    });
    Client::new(service, namespace)
}
