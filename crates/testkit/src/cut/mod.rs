//! A client that fails where it is told to, on the way to a real API server.
//! Comes in: a client, the number of a call and how that call shall fail; goes out: the same client with that one flaw,
//! and [`crash_everywhere`], which tries every flaw at every call and compares what is left.

mod compare;
mod everywhere;
mod fated;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{future, io};

use anyhow::Result;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::Notify;

pub use compare::normalised;
pub use everywhere::{Crashes, crash_everywhere, crash_everywhere_and, stale_everywhere};
pub use fated::{Fate, fated};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection breaks before anything is sent.
    NotSent,
    /// The server does what was asked, and the connection breaks before the answer.
    AnswerLost,
    /// The server does nothing and answers with this code.
    Status(u16),
    /// The server does what was asked, and there is no answer in time.
    Timeout,
}

impl Cut {
    /// All that happens to a call in real life.
    pub const ALL: [Self; 7] = [
        Self::NotSent,
        Self::AnswerLost,
        Self::Status(409),
        Self::Status(429),
        Self::Status(500),
        Self::Status(504),
        Self::Timeout,
    ];

    /// With a connection that breaks, the process is taken to die.
    fn then(self) -> Then {
        match self {
            Self::NotSent | Self::AnswerLost => Then::Dead,
            Self::Status(_) | Self::Timeout => Then::Made,
        }
    }
}

/// Which calls are counted and cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// Those that change something.
    Writes,
    /// Reads too.
    All,
}

/// What becomes of the calls after the cut one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// They are made as ever.
    Made,
    /// The server is gone: they fail.
    Gone,
    /// The process is dead: neither the cut call nor another one ever returns to it. With an error it would go on to wherever
    /// errors lead until somebody notices that it is dead.
    Dead,
}

/// Counts the calls of its clients and cuts one of them.
#[derive(Clone, Debug)]
pub struct Cutter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The number of the call, from 1, and how it fails.
    cut: Option<(usize, Cut)>,
    then: Then,
    counted: Calls,
    calls: AtomicUsize,
    /// Those that change something, counted or not.
    writes: AtomicUsize,
    hit: AtomicBool,
    /// Told once the call at which the process dies has had its effect.
    died: Notify,
}

impl Cutter {
    /// Cuts nothing and counts the calls that change something.
    pub fn counting() -> Self {
        Self::new(Calls::Writes, None, Then::Made)
    }

    /// Cuts call `number`, from 1, of those that change something.
    pub fn at(number: usize, cut: Cut) -> Self {
        Self::new(Calls::Writes, Some((number, cut)), Then::Made)
    }

    fn new(counted: Calls, cut: Option<(usize, Cut)>, then: Then) -> Self {
        let (calls, writes, hit) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { cut, then, counted, calls, writes, hit, died: Notify::new() }) }
    }

    /// The server is gone after the cut: no further call is answered.
    pub fn then_gone(self) -> Self {
        Self::new(self.shared.counted, self.shared.cut, Then::Gone)
    }

    /// Counts and cuts reads too.
    pub fn with_reads(self) -> Self {
        Self::new(Calls::All, self.shared.cut, self.shared.then)
    }

    /// How many calls were counted, the cut one included.
    pub fn calls(&self) -> usize {
        self.shared.calls.load(Ordering::SeqCst)
    }

    fn writes(&self) -> usize {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// Whether the cut has happened.
    pub fn hit(&self) -> bool {
        self.shared.hit.load(Ordering::SeqCst)
    }

    /// Until the process is dead; for ever where it does not die.
    async fn death(&self) {
        self.shared.died.notified().await;
    }

    /// The same client, cut by this.
    pub fn around(&self, client: &Client) -> Client {
        let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
        let cutter = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, cutter) = (inner.clone(), cutter.clone());
            async move { cutter.send(&client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let shared = &self.shared;
        match shared.then {
            Then::Gone if self.hit() => return Err(broken("the server is gone")),
            Then::Dead if self.hit() => return future::pending().await,
            _ => {}
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !reads {
            shared.writes.fetch_add(1, Ordering::SeqCst);
        } else if shared.counted == Calls::Writes {
            return Ok(client.send(request).await?);
        }
        let number = shared.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let Some((_, cut)) = shared.cut.filter(|(at, _)| *at == number) else {
            return Ok(client.send(request).await?);
        };
        shared.hit.store(true, Ordering::SeqCst);
        let cut = self.fail(client, request, cut).await;
        if shared.then == Then::Dead {
            shared.died.notify_one();
            return future::pending().await;
        }
        cut
    }

    async fn fail(&self, client: &Client, request: Request<Body>, cut: Cut) -> Result<Response<Body>, tower::BoxError> {
        match cut {
            Cut::NotSent => Err(broken("cut before the call was sent")),
            Cut::AnswerLost => {
                client.send(request).await?;
                Err(broken("cut before the answer came"))
            }
            Cut::Timeout => {
                client.send(request).await?;
                // What a client says when its time is up. To wait for that would teach nothing.
                Err(io::Error::new(io::ErrorKind::TimedOut, "cut: there was no answer in time").into())
            }
            Cut::Status(code) => Ok(answer(code)?),
        }
    }
}

fn broken(what: &str) -> tower::BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, what).into()
}

fn answer(code: u16) -> http::Result<Response<Body>> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}, "code": code,
        "reason": reason, "message": format!("cut: answered {code}") });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes()))
}
