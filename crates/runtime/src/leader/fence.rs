//! Stops writes when leadership ends. The client of everything that only the leader does has a fence: once the Lease was not
//! renewed in time, requests that change something are refused before they are sent.
//!
//! A leader that was suspended for a minute in the middle of a reconcile therefore does no harm when it resumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tower::{BoxError, Layer, Service};

use crate::client::{NotLeading, Server};

/// Knows whether this process leads at this moment.
#[derive(Clone, Debug)]
pub struct Fence {
    shared: Arc<FenceState>,
}

#[derive(Debug)]
struct FenceState {
    epoch: Instant,
    /// End of leadership, in milliseconds since the epoch. Zero: this process does not lead.
    until: AtomicU64,
}

impl Default for Fence {
    fn default() -> Self {
        Self { shared: Arc::new(FenceState { epoch: Instant::now(), until: AtomicU64::new(0) }) }
    }
}

impl Fence {
    /// Opens the fence until `until`.
    pub fn open_until(&self, until: Instant) {
        let millis = until.saturating_duration_since(self.shared.epoch).as_millis();
        self.shared.until.store(u64::try_from(millis).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The same server, with a client that sends only reads while the fence is closed.
    pub fn guard(&self, server: &Server) -> Server {
        server.with_client(self.around(&server.client))
    }

    /// The same client, which sends only reads while the fence is closed.
    pub fn around(&self, client: &Client) -> Client {
        let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
        let send = tower::service_fn(move |request: Request<Body>| {
            let client = inner.clone();
            async move { client.send(request).await }
        });
        Client::new(self.layer(send), namespace)
    }

    /// Whether both are the fence of the same term.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Closes the fence now.
    pub fn close(&self) {
        self.shared.until.store(0, Ordering::Release);
    }

    pub fn is_open(&self) -> bool {
        self.is_open_at(Instant::now())
    }

    fn is_open_at(&self, now: Instant) -> bool {
        let until = Duration::from_millis(self.shared.until.load(Ordering::Acquire));
        !until.is_zero() && now.saturating_duration_since(self.shared.epoch) < until
    }
}

impl<S> Layer<S> for Fence {
    type Service = Fenced<S>;

    fn layer(&self, inner: S) -> Fenced<S> {
        Fenced { inner, fence: self.clone() }
    }
}

/// Wraps the service of a client: while the fence is closed, requests other than reads fail with [`NotLeading`].
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: Fence,
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future =
        Either<Ready<Result<S::Response, BoxError>>, futures::future::MapErr<S::Future, fn(S::Error) -> BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        use futures::TryFutureExt;
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if reads || self.fence.is_open() {
            return Either::Right(self.inner.call(request).map_err(Into::into));
        }
        let refused = NotLeading { method: request.method().clone(), path: request.uri().path().to_owned() };
        Either::Left(ready(Err(refused.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_open_only_until_its_deadline() {
        let fence = Fence::default();
        let now = Instant::now();
        assert!(!fence.is_open_at(now), "a new fence is closed");
        fence.open_until(now + Duration::from_secs(10));
        assert!(fence.is_open_at(now + Duration::from_secs(9)));
        assert!(!fence.is_open_at(now + Duration::from_secs(11)), "the deadline has passed");
        fence.open_until(now + Duration::from_secs(20));
        assert!(fence.is_open_at(now + Duration::from_secs(11)));
        fence.close();
        assert!(!fence.is_open_at(now));
    }

    #[tokio::test]
    async fn closed_fence_blocks_only_writes() {
        let fence = Fence::default();
        let inner = tower::service_fn(|request: Request<()>| ready(Ok::<_, BoxError>(request.method().clone())));
        let mut service = fence.layer(inner);
        let mut send = |method: Method| {
            let request = Request::builder().method(method).uri("/api/v1/pods").body(()).unwrap();
            service.call(request)
        };
        assert_eq!(send(Method::GET).await.unwrap(), Method::GET);
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let refused = send(method.clone()).await.unwrap_err();
            assert_eq!(refused.to_string(), format!("no longer the leader: {method} /api/v1/pods was not sent"));
        }
        fence.open_until(Instant::now() + Duration::from_secs(60));
        assert_eq!(send(Method::PATCH).await.unwrap(), Method::PATCH);
    }
}
