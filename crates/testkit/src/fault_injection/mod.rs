//! Fault injection: clients of a real API server, of which one call fails in a given way. [`crash_at_every_call`] tries
//! every fault at every call and compares the resulting objects.

mod compare;
mod conditional;
mod sweep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::{future, io};

use anyhow::Result;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::sync::Notify;

pub use compare::normalize;
pub use conditional::{RequestFault, inject_by_request};
pub use sweep::{SweepReport, crash_at_every_call, crash_at_every_call_with_invariant, stale_view_at_every_reconcile};

/// A way in which a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The connection breaks before the request is sent.
    NotSent,
    /// The server handles the request, and the connection breaks before the response.
    ResponseLost,
    /// The server rejects the request with this status code.
    Status(u16),
    /// The server handles the request, and the client times out before the response.
    Timeout,
}

impl CallFault {
    /// All faults that happen in production.
    pub const ALL: [Self; 7] = [
        Self::NotSent,
        Self::ResponseLost,
        Self::Status(409),
        Self::Status(429),
        Self::Status(500),
        Self::Status(504),
        Self::Timeout,
    ];

    /// A broken connection simulates a crash of the process.
    fn after(self) -> AfterFault {
        match self {
            Self::NotSent | Self::ResponseLost => AfterFault::Crashed,
            Self::Status(_) | Self::Timeout => AfterFault::Succeed,
        }
    }
}

/// The calls that are counted and may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedCalls {
    /// Calls that change something.
    Writes,
    /// Writes and reads.
    All,
}

/// The behaviour of the calls after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFault {
    /// The calls succeed as usual.
    Succeed,
    /// The server is unreachable: all calls fail.
    Unreachable,
    /// The process has crashed: neither the failed call nor a later one returns. Errors instead would run the error
    /// handling, which a crashed process does not.
    Crashed,
}

/// Counts the calls of its clients and lets one of them fail.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    state: Arc<InjectorState>,
}

#[derive(Debug)]
struct InjectorState {
    /// The number of the call, from 1, and its fault.
    fault: Option<(usize, CallFault)>,
    after: AfterFault,
    counted: CountedCalls,
    calls: AtomicUsize,
    /// All calls that change something, counted or not.
    writes: AtomicUsize,
    fired: AtomicBool,
    /// Notified once the call at which the process crashes has taken effect.
    crashed: Notify,
}

impl FaultInjector {
    /// Counts the calls that change something, without a fault.
    pub fn without_fault() -> Self {
        Self::new(CountedCalls::Writes, None, AfterFault::Succeed)
    }

    /// Lets call `number` fail, counted from 1 among the calls that change something.
    pub fn fail_call(number: usize, fault: CallFault) -> Self {
        Self::new(CountedCalls::Writes, Some((number, fault)), AfterFault::Succeed)
    }

    fn new(counted: CountedCalls, fault: Option<(usize, CallFault)>, after: AfterFault) -> Self {
        let (calls, writes, fired) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { state: Arc::new(InjectorState { fault, after, counted, calls, writes, fired, crashed: Notify::new() }) }
    }

    /// Makes the server unreachable after the fault: all later calls fail.
    pub fn then_unreachable(self) -> Self {
        Self::new(self.state.counted, self.state.fault, AfterFault::Unreachable)
    }

    /// Includes reads.
    pub fn include_reads(self) -> Self {
        Self::new(CountedCalls::All, self.state.fault, self.state.after)
    }

    /// Number of counted calls, including the failed one.
    pub fn call_count(&self) -> usize {
        self.state.calls.load(Ordering::SeqCst)
    }

    fn writes(&self) -> usize {
        self.state.writes.load(Ordering::SeqCst)
    }

    /// Whether the fault has happened.
    pub fn has_fired(&self) -> bool {
        self.state.fired.load(Ordering::SeqCst)
    }

    /// Waits for the simulated crash. Never returns if there is none.
    async fn wait_for_crash(&self) {
        self.state.crashed.notified().await;
    }

    /// Wraps a client, so that its calls are counted and may fail.
    pub fn wrap(&self, client: &Client) -> Client {
        let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
        let injector = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, injector) = (inner.clone(), injector.clone());
            async move { injector.send(&client, request).await }
        });
        Client::new(service, namespace)
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let state = &self.state;
        match state.after {
            AfterFault::Unreachable if self.has_fired() => return Err(connection_error("the server is gone")),
            AfterFault::Crashed if self.has_fired() => return future::pending().await,
            _ => {}
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !is_read {
            state.writes.fetch_add(1, Ordering::SeqCst);
        } else if state.counted == CountedCalls::Writes {
            return Ok(client.send(request).await?);
        }
        let number = state.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let Some((_, fault)) = state.fault.filter(|(at, _)| *at == number) else {
            return Ok(client.send(request).await?);
        };
        state.fired.store(true, Ordering::SeqCst);
        let result = self.fail(client, request, fault).await;
        if state.after == AfterFault::Crashed {
            state.crashed.notify_one();
            return future::pending().await;
        }
        result
    }

    async fn fail(
        &self,
        client: &Client,
        request: Request<Body>,
        fault: CallFault,
    ) -> Result<Response<Body>, tower::BoxError> {
        match fault {
            CallFault::NotSent => Err(connection_error("cut before the call was sent")),
            CallFault::ResponseLost => {
                client.send(request).await?;
                Err(connection_error("cut before the answer came"))
            }
            CallFault::Timeout => {
                client.send(request).await?;
                // The error of a client after its timeout, without waiting for the timeout.
                Err(io::Error::new(io::ErrorKind::TimedOut, "cut: there was no answer in time").into())
            }
            CallFault::Status(code) => Ok(error_response(code)?),
        }
    }
}

fn connection_error(what: &str) -> tower::BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, what).into()
}

fn error_response(code: u16) -> http::Result<Response<Body>> {
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
