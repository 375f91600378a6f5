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
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

use super::guard::{GuardedResolver, Network};
use crate::proxy;

/// Connects directly, or through the proxy that `proxies` name for the address.
#[derive(Clone)]
pub struct Connector {
    direct: HttpConnector<GuardedResolver>,
    /// The administrator sets the address of a proxy, so that every address is allowed. The proxy resolves names itself.
    to_proxy: HttpConnector<GuardedResolver>,
    proxies: Option<Arc<Matcher>>,
}

impl Connector {
    /// `network` limits the addresses of names; `None` allows every address.
    pub fn new(timeout: Duration, proxies: Option<Arc<Matcher>>, network: Option<Network>) -> Self {
        let connector = |network| {
            let mut connector = HttpConnector::new_with_resolver(GuardedResolver::new(network));
            connector.enforce_http(false);
            connector.set_connect_timeout(Some(timeout));
            connector
        };
        Self { direct: connector(network), to_proxy: connector(None), proxies }
    }
}

/// The proxy for an address. `None` connects directly.
pub fn proxy_for(proxies: Option<&Arc<Matcher>>, address: &Uri) -> Option<Intercept> {
    proxies.filter(|_| !proxy::is_bypassed(address, ""))?.intercept(address)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let Some(proxy) = proxy_for(self.proxies.as_ref(), &address) else {
            let connection = self.direct.call(address);
            return Box::pin(async move { Ok(connection.await?) });
        };
        if proxy.uri().scheme() != Some(&Scheme::HTTP) {
            let cause = "only proxies with an http:// address can be used; change HTTPS_PROXY";
            return Box::pin(std::future::ready(Err(io::Error::new(io::ErrorKind::Unsupported, cause).into())));
        }
        let tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy.clone());
        let mut tunnel = match proxy.basic_auth() {
            Some(login) => tunnel.with_auth(login.clone()),
            None => tunnel,
        };
        let connection = tunnel.call(address);
        Box::pin(async move { Ok(connection.await?) })
    }
}
