//! HTTP client for servers other than the API server. Redirects, response size and time are bounded.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, LOCATION, USER_AGENT};
use http::response::Parts;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::{CertificateDer, ServerName};

use super::connect::Connector;
use super::inside::Inside;
use super::tls::{self, Identity, Trust};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("steersman/", env!("CARGO_PKG_VERSION")));

/// Blobs are usually one redirect away from the registry.
const MOST_REDIRECTS: usize = 5;

/// Settings of an [`Http`] client.
#[derive(Clone)]
pub struct HttpSettings {
    pub connect: Duration,
    /// Time limit of one request with its response.
    pub answer: Duration,
    /// Time for which an idle connection stays open. If many hosts are asked once in a while, each idle connection only
    /// costs memory: twenty kilobytes and a descriptor.
    pub idle: Duration,
    /// Hosts (`host` or `host:port`) that are asked at another address, by plain http if the value has that scheme.
    pub elsewhere: BTreeMap<String, Uri>,
    /// Addresses with the scheme `http` are asked as they are. Elsewhere that is refused.
    pub plain: bool,
    pub trust: Trust,
    /// Authorities that `trust` speaks of.
    pub roots: Vec<CertificateDer<'static>>,
    /// Client certificate. `None` sends none.
    pub identity: Option<Arc<Identity>>,
    /// Name that the server's certificate must have. `None` requires the host of the URL.
    pub server_name: Option<ServerName<'static>>,
    /// `None` connects without a proxy.
    pub proxies: Option<Arc<Matcher>>,
    /// If set, only servers inside the cluster are reached.
    pub inside: Option<Inside>,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(15),
            idle: Duration::from_secs(30),
            elsewhere: BTreeMap::new(),
            plain: false,
            trust: Trust::default(),
            roots: vec![],
            identity: None,
            server_name: None,
            proxies: None,
            inside: None,
        }
    }
}

impl HttpSettings {
    /// Settings with the proxies of the environment variables.
    pub fn from_env() -> Self {
        Self { proxies: Some(Arc::new(Matcher::from_env())), ..Self::default() }
    }
}

/// Causes of a failed request. Addresses appear without path and query, which may hold signatures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error(
        "{host} would be asked over plain http, which is only done where the operator's settings say so; serve it by https"
    )]
    NotHttps { host: String },
    #[error("{host} is not the address of a Service or a pod in this cluster")]
    NotInside { host: String },
    #[error("{host} refuses connections")]
    Refused { host: String },
    #[error(
        "the certificate of {host} is not trusted ({cause}); add its authority to the certificates that the operator trusts"
    )]
    NotTrusted { host: String, cause: String },
    #[error("{host} gave no answer within {limit:?}")]
    TooSlow { host: String, limit: Duration },
    #[error("the answer of {host} is longer than {limit} bytes")]
    TooLong { host: String, limit: usize },
    #[error("{host} sends us on and on, more than {MOST_REDIRECTS} times")]
    Lost { host: String },
    #[error("{host} sends us on to an address that cannot be read")]
    BadRedirect { host: String },
    #[error("cannot talk to {host}: {cause}")]
    Failed { host: String, cause: String },
}

/// A request, with a limit for the response.
#[derive(Clone)]
pub struct HttpRequest {
    pub method: Method,
    pub url: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The most bytes that the answer may have.
    pub limit: usize,
}

impl HttpRequest {
    pub fn get(url: Uri, limit: usize) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new(), limit }
    }
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    answer: Duration,
    elsewhere: Arc<BTreeMap<String, Uri>>,
    plain: bool,
    inside: Option<Arc<Inside>>,
}

impl Http {
    /// Reads the system's certificates where they are trusted; sends nothing yet.
    pub fn new(settings: HttpSettings) -> Result<Self, rustls::Error> {
        let (tls, names) = (tls::config(&settings)?, tls::names(&settings));
        let connector = HttpsConnector::new(Connector::new(settings.connect, settings.proxies), tls, false, names);
        let mut client = Client::builder(TokioExecutor::new());
        // Without a timer, who is not asked again is never hung up on.
        client.pool_timer(TokioTimer::new()).pool_idle_timeout(settings.idle);
        if settings.idle.is_zero() {
            client.pool_max_idle_per_host(0);
        }
        let client = client.build(connector);
        Ok(Self {
            client,
            answer: settings.answer,
            elsewhere: Arc::new(settings.elsewhere),
            plain: settings.plain,
            inside: settings.inside.map(Arc::new),
        })
    }

    /// Sends the request and follows where it is sent on to, but never from a server inside the cluster: those are users',
    /// and where they may not reach, the operator might. Any status is an answer.
    pub async fn ask(&self, ask: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = host(&ask.url);
        let slow = HttpError::TooSlow { host, limit: self.answer };
        tokio::time::timeout(self.answer, self.follow(ask)).await.unwrap_or(Err(slow))
    }

    async fn follow(&self, mut ask: HttpRequest) -> Result<HttpResponse, HttpError> {
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.once(&ask).await?;
            let followed = self.inside.is_none() && (ask.method == Method::GET || ask.method == Method::HEAD);
            if !(answer.status.is_redirection() && followed && answer.headers.contains_key(LOCATION)) {
                return Ok(answer);
            }
            let next =
                redirected(&ask.url, &answer.headers).ok_or_else(|| HttpError::BadRedirect { host: host(&ask.url) })?;
            // The registry's credentials must not reach the server that stores the blobs.
            if next.authority() != ask.url.authority() {
                ask.headers.remove(AUTHORIZATION);
            }
            ask.url = next;
        }
        Err(HttpError::Lost { host: host(&ask.url) })
    }

    async fn once(&self, ask: &HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut body = BytesMut::new();
        let parts = self.send(ask, |_, piece| body.extend_from_slice(piece)).await?;
        Ok(HttpResponse { status: parts.status, headers: parts.headers, body: body.freeze() })
    }

    /// Sends the request and gives each piece of the answer away as it comes, so that a long one is never held whole. No
    /// redirect is followed: it is an answer like any other.
    pub async fn ask_in_pieces(
        &self,
        ask: &HttpRequest,
        piece: impl FnMut(StatusCode, &[u8]),
    ) -> Result<(StatusCode, HeaderMap), HttpError> {
        let slow = HttpError::TooSlow { host: host(&ask.url), limit: self.answer };
        let sent = tokio::time::timeout(self.answer, self.send(ask, piece)).await;
        sent.unwrap_or(Err(slow)).map(|parts| (parts.status, parts.headers))
    }

    async fn send(&self, ask: &HttpRequest, mut piece: impl FnMut(StatusCode, &[u8])) -> Result<Parts, HttpError> {
        let host = host(&ask.url);
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = self.address(&ask.url)?;
        *request.headers_mut() = ask.headers.clone();
        request.headers_mut().insert(USER_AGENT, AGENT);
        if let Some(name) = self.inside.as_ref().and_then(|inside| inside.host_header(&ask.url)) {
            request.headers_mut().insert(HOST, name);
        }
        let answer = self.client.request(request).await.map_err(|error| explain(&host, &error))?;
        let (parts, body) = answer.into_parts();
        let long = || HttpError::TooLong { host: host.clone(), limit: ask.limit };
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // The answer to HEAD has no body; its length is that of the one which GET would bring.
        if ask.method != Method::HEAD && announced.is_some_and(|length| length > ask.limit as u64) {
            return Err(long());
        }
        let mut body = Limited::new(body, ask.limit);
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(
                    |error| if error.is::<LengthLimitError>() { long() } else { explain(&host, error.as_ref()) },
                )?;
            if let Some(data) = frame.data_ref() {
                piece(parts.status, data);
            }
        }
        Ok(parts)
    }

    /// The address to connect to. Plain HTTP is refused unless the settings allow it.
    fn address(&self, url: &Uri) -> Result<Uri, HttpError> {
        if let Some(inside) = &self.inside {
            return inside.address(url).ok_or_else(|| HttpError::NotInside { host: host(url) });
        }
        let named = url.authority().map(|authority| authority.as_str().to_ascii_lowercase()).unwrap_or_default();
        let Some(other) = self.elsewhere.get(&named) else {
            let allowed = url.scheme() == Some(&Scheme::HTTPS) || (self.plain && url.scheme() == Some(&Scheme::HTTP));
            return if allowed { Ok(url.clone()) } else { Err(HttpError::NotHttps { host: host(url) }) };
        };
        let mut parts = url.clone().into_parts();
        parts.scheme = other.scheme().cloned();
        parts.authority = other.authority().cloned();
        Uri::from_parts(parts)
            .map_err(|_| HttpError::Failed { host: host(url), cause: "the address set for it has no host".to_owned() })
    }
}

/// Host and port, for messages.
fn host(url: &Uri) -> String {
    url.authority().map_or("(no host)", Authority::as_str).rsplit('@').next().unwrap_or_default().to_owned()
}

fn redirected(from: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let next: Uri = headers.get(LOCATION)?.to_str().ok()?.parse().ok()?;
    if next.authority().is_some() && next.scheme().is_some() {
        return Some(next);
    }
    // A relative redirect must be a path from the root. Registries use no other form for blobs.
    let path = next.path_and_query().filter(|path| path.as_str().starts_with('/'))?;
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(path.clone());
    Uri::from_parts(parts).ok()
}

fn explain(host: &str, error: &(dyn Error + 'static)) -> HttpError {
    let host = host.to_owned();
    let mut deepest = error.to_string();
    let causes = std::iter::successors(Some(error), |&error| {
        // `io::Error` hides the error it wraps from `source`, and TLS errors arrive wrapped so.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
    });
    for cause in causes {
        deepest = cause.to_string();
        if let Some(rustls::Error::InvalidCertificate(problem)) = cause.downcast_ref() {
            return HttpError::NotTrusted { host, cause: problem.to_string() };
        }
        if cause.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::ConnectionRefused) {
            return HttpError::Refused { host };
        }
    }
    HttpError::Failed { host, cause: deepest }
}
