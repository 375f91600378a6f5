//! Bounds the connections of a server: their number, the time for the head of a request, and the time for a client to read
//! a response.
//!
//! When all connections are taken, a new one replaces a connection of the address that has most of them. An address can
//! therefore take all connections only while no other address needs one.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::Service;

use super::client_certificates::{CertifiedStream, UncheckedCertificates};

/// Limits of the connections of one server.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Open connections. One API server has at most 600 requests in flight by default.
    pub connections: usize,
    /// Time for the TLS handshake; for the head of the first request, counted from the connection; and for the head of a
    /// later request, counted from its first byte.
    pub head: Duration,
    /// Time between two requests.
    pub idle: Duration,
    /// Time for the client to read a response, counted from the first moment at which it does not read.
    pub response: Duration,
}

/// The client of a request, in the extensions of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub address: IpAddr,
}

struct Connection {
    address: IpAddr,
    /// Whether a request is being processed.
    is_busy: AtomicBool,
    evicted: CancellationToken,
}

/// The open connections of a server by their number, the oldest first.
#[derive(Default)]
struct OpenConnections {
    next: u64,
    open: BTreeMap<u64, Arc<Connection>>,
}

impl OpenConnections {
    /// Adds a connection unless all are taken and no address has more of them than this one.
    fn add(&mut self, address: IpAddr, limit: usize) -> Option<(u64, Arc<Connection>)> {
        if self.open.len() >= limit {
            let evicted = self.replaceable(address)?;
            if let Some(evicted) = self.open.remove(&evicted) {
                evicted.evicted.cancel();
            }
        }
        let connection =
            Arc::new(Connection { address, is_busy: AtomicBool::new(false), evicted: CancellationToken::new() });
        self.next += 1;
        self.open.insert(self.next, connection.clone());
        Some((self.next, connection))
    }

    /// The connection that makes way for a new one of this address: of the address with most connections, the oldest that
    /// processes no request, or else the oldest.
    fn replaceable(&self, address: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.open.values() {
            *counts.entry(connection.address).or_default() += 1;
        }
        let own = counts.get(&address).copied().unwrap_or_default();
        let (largest, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        if count <= own.saturating_add(1) {
            return None;
        }
        let mut of_largest = self.open.iter().filter(|(_, connection)| connection.address == largest);
        let oldest = of_largest.clone().next()?.0;
        let idle = of_largest.find(|(_, connection)| !connection.is_busy.load(Ordering::Relaxed));
        Some(*idle.map_or(oldest, |(number, _)| number))
    }
}

/// A connection that counts until it is dropped.
struct Slot {
    number: u64,
    connection: Arc<Connection>,
    all: Arc<Mutex<OpenConnections>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).open.remove(&self.number);
    }
}

/// Accepts connections within the limits, after the acceptor `A`.
#[derive(Clone)]
pub(super) struct LimitedAcceptor<A> {
    inner: A,
    limits: ConnectionLimits,
    all: Arc<Mutex<OpenConnections>>,
}

impl<A> LimitedAcceptor<A> {
    pub fn new(inner: A, limits: ConnectionLimits) -> Self {
        Self { inner, limits, all: Arc::default() }
    }

    fn slot(&self, address: IpAddr) -> io::Result<Slot> {
        let added = self.all.lock().unwrap_or_else(PoisonError::into_inner).add(address, self.limits.connections);
        let (number, connection) = added.ok_or_else(|| io::Error::other("all connections are taken"))?;
        Ok(Slot { number, connection, all: self.all.clone() })
    }
}

impl<A, S> Accept<TcpStream, S> for LimitedAcceptor<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
    A::Stream: CertifiedStream,
{
    type Stream = LimitedStream<A::Stream>;
    type Service = PeerService<A::Service>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let slot = stream.peer_addr().and_then(|peer| self.slot(peer.ip()));
        let (accepted, limits) = (self.inner.accept(stream, service), self.limits);
        async move {
            let slot = slot?;
            let evicted = slot.connection.evicted.clone().cancelled_owned();
            let (stream, service) = tokio::select! {
                accepted = accepted => accepted?,
                () = evicted => return Err(evicted_error()),
            };
            let peer = Peer { address: slot.connection.address };
            let certificates = stream.client_certificates();
            let service = PeerService { inner: service, peer, certificates, connection: slot.connection.clone() };
            Ok((LimitedStream::new(stream, slot, limits), service))
        }
        .boxed()
    }
}

/// Adds the [`Peer`] and its certificates to each request, and records whether a request is being processed.
#[derive(Clone)]
pub(super) struct PeerService<S> {
    inner: S,
    peer: Peer,
    certificates: Option<UncheckedCertificates>,
    connection: Arc<Connection>,
}

impl<S, B> Service<Request<B>> for PeerService<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        if let Some(certificates) = self.certificates.clone() {
            request.extensions_mut().insert(certificates);
        }
        self.connection.is_busy.store(true, Ordering::Relaxed);
        let (response, connection) = (self.inner.call(request), self.connection.clone());
        async move {
            let response = response.await;
            connection.is_busy.store(false, Ordering::Relaxed);
            response
        }
        .boxed()
    }
}

/// A stream that ends with an error if it is evicted, or if its client sends a head or reads a response too slowly.
pub(super) struct LimitedStream<I> {
    inner: I,
    slot: Slot,
    limits: ConnectionLimits,
    evicted: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Set from the first byte of a head until the request is processed.
    head_deadline: Option<Pin<Box<Sleep>>>,
    /// Set from the first write that had to wait until the next request.
    response_deadline: Option<Pin<Box<Sleep>>>,
}

impl<I> LimitedStream<I> {
    fn new(inner: I, slot: Slot, limits: ConnectionLimits) -> Self {
        let evicted = Box::pin(slot.connection.evicted.clone().cancelled_owned());
        let head_deadline = Some(Box::pin(sleep(limits.head)));
        Self { inner, slot, limits, evicted, head_deadline, response_deadline: None }
    }

    /// Ends a write that had to wait, once the time for the response is over.
    fn waiting_write<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            return result;
        }
        if self.evicted.poll_unpin(context).is_ready() {
            return Poll::Ready(Err(evicted_error()));
        }
        let limit = self.limits.response;
        let deadline = self.response_deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        match deadline.poll_unpin(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for LimitedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.evicted.poll_unpin(context).is_ready() {
            return Poll::Ready(Err(evicted_error()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(context, buffer);
        if this.slot.connection.is_busy.load(Ordering::Relaxed) {
            // The request has been read; its body has limits of its own.
            (this.head_deadline, this.response_deadline) = (None, None);
            return read;
        }
        if buffer.filled().len() > before && this.head_deadline.is_none() {
            this.head_deadline = Some(Box::pin(sleep_until(Instant::now() + this.limits.head)));
        }
        if read.is_pending() && this.head_deadline.as_mut().is_some_and(|head| head.poll_unpin(context).is_ready()) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for LimitedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // A response is written: its request is complete.
        self.head_deadline = None;
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.waiting_write(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.waiting_write(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(context);
        self.waiting_write(context, closed)
    }
}

fn evicted_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "a connection of another address took its place")
}

#[cfg(test)]
mod tests;
