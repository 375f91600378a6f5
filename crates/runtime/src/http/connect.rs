//! Opens TCP connections to servers other than the API server, through a proxy if one is configured for the address.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use crate::proxy;

/// Connects directly, or through the proxy that `proxies` name for the address.
#[derive(Clone)]
pub struct Connector {
    direct: HttpConnector,
    proxies: Option<Arc<Matcher>>,
}

impl Connector {
    pub fn new(limit: Duration, proxies: Option<Arc<Matcher>>) -> Self {
        let mut direct = HttpConnector::new();
        direct.enforce_http(false);
        direct.set_connect_timeout(Some(limit));
        Self { direct, proxies }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let through = self.proxies.as_ref().filter(|_| !proxy::is_bypassed(&address, ""));
        let Some(proxy) = through.and_then(|proxies| proxies.intercept(&address)) else {
            let connection = self.direct.call(address);
            return Box::pin(async move { Ok(connection.await?) });
        };
        if proxy.uri().scheme() != Some(&Scheme::HTTP) {
            let cause = "only proxies with an http:// address can be used; change HTTPS_PROXY";
            return Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::Unsupported, cause).into())));
        }
        let tunnel = Tunnel::new(proxy.uri().clone(), self.direct.clone());
        let mut tunnel = match proxy.basic_auth() {
            Some(login) => tunnel.with_auth(login.clone()),
            None => tunnel,
        };
        let connection = tunnel.call(address);
        Box::pin(async move { Ok(connection.await?) })
    }
}
