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
use hyper_util::client::legacy::connect::HttpInfo;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::{CertificateDer, ServerName};

use super::connect::{Connector, proxy_for};
use super::guard::{self, Network, Reach, RefusedAddress};
use super::inside::Inside;
use super::tls::{self, Identity, Trust};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("steersman/", env!("CARGO_PKG_VERSION")));

/// Blobs are usually one redirect away from the registry.
const MAX_REDIRECTS: usize = 5;

/// Settings of an [`Http`] client.
#[derive(Clone)]
pub struct HttpSettings {
    pub connect: Duration,
    /// Time limit of one request with its response.
    pub answer: Duration,
    /// Time for which an idle connection stays open. With many hosts that are each contacted rarely, an idle connection
    /// only costs memory: twenty kilobytes and a descriptor.
    pub idle: Duration,
    /// Hosts (`host` or `host:port`) that are reached at another address, by plain http if the value has that scheme.
    pub elsewhere: BTreeMap<String, Uri>,
    /// Allows addresses with the scheme `http`.
    pub plain: bool,
    pub trust: Trust,
    /// CAs that `trust` refers to.
    pub roots: Vec<CertificateDer<'static>>,
    /// Client certificate. `None` sends none.
    pub identity: Option<Arc<Identity>>,
    /// Name that the server's certificate must have. `None` requires the host of the URL.
    pub server_name: Option<ServerName<'static>>,
    /// `None` connects without a proxy.
    pub proxies: Option<Arc<Matcher>>,
    pub reach: Reach,
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
            reach: Reach::default(),
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
    #[error("the operator's settings do not allow plain http to {host}; serve it over https")]
    NotHttps { host: String },
    #[error("{host} is not the address of a Service or a pod in this cluster")]
    NotInside { host: String },
    #[error(
        "{host} is at an address of this machine, its links or a metadata service, which users cannot make the operator \
         reach"
    )]
    LocalAddress { host: String },
    #[error(
        "{host} is at a private address, and the server that names it is not; a server may only name public ones then"
    )]
    PrivateAddress { host: String },
    #[error("{host} refuses connections")]
    Refused { host: String },
    #[error(
        "the certificate of {host} is not trusted ({cause}); set the environment variable SSL_CERT_FILE of the operator to \
         a file with all CAs that it needs, including the CA of {host}"
    )]
    NotTrusted { host: String, cause: String },
    #[error("{host} did not respond within {limit:?}")]
    TooSlow { host: String, limit: Duration },
    #[error("the response of {host} is longer than {limit} bytes")]
    TooLong { host: String, limit: usize },
    #[error("{host} redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects { host: String },
    #[error("{host} redirects to an invalid address")]
    BadRedirect { host: String },
    #[error("the request to {host} failed: {cause}")]
    Failed { host: String, cause: String },
}

/// A request, with a limit for the response.
#[derive(Clone)]
pub struct HttpRequest {
    pub method: Method,
    pub url: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The most bytes that the response may have.
    pub limit: usize,
    /// Largest network that [`Reach::UserNamed`] allows. Set it to that of the server that named this URL, so that a public
    /// server cannot name private ones.
    pub network: Network,
}

impl HttpRequest {
    pub fn get(url: Uri, limit: usize) -> Self {
        Self {
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            limit,
            network: Network::Private,
        }
    }
}

#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Network of the server.
    pub network: Network,
}

type HyperClient = Client<HttpsConnector<Connector>, Full<Bytes>>;

#[derive(Clone)]
pub struct Http {
    client: HyperClient,
    /// Client for requests with [`Network::Public`]. It shares no open connections with `client`.
    public_client: HyperClient,
    proxies: Option<Arc<Matcher>>,
    response_timeout: Duration,
    elsewhere: Arc<BTreeMap<String, Uri>>,
    plain: bool,
    reach: Arc<Reach>,
}

impl Http {
    /// Reads the system's certificates if they are trusted; sends nothing yet.
    pub fn new(settings: HttpSettings) -> Result<Self, rustls::Error> {
        let (tls, names) = (tls::config(&settings)?, tls::names(&settings));
        let client = |network| {
            let connector = Connector::new(settings.connect, settings.proxies.clone(), network);
            let connector = HttpsConnector::new(connector, tls.clone(), false, names.clone());
            let mut client = Client::builder(TokioExecutor::new());
            // Without a timer, the pool never closes idle connections.
            client.pool_timer(TokioTimer::new()).pool_idle_timeout(settings.idle);
            if settings.idle.is_zero() {
                client.pool_max_idle_per_host(0);
            }
            client.build(connector)
        };
        let (any, public) = match &settings.reach {
            Reach::Configured | Reach::Inside(Inside { through: Some(_) }) => (None, None),
            Reach::Inside(Inside { through: None }) => (Some(Network::Private), Some(Network::Private)),
            Reach::UserNamed => (Some(Network::Private), Some(Network::Public)),
        };
        Ok(Self {
            client: client(any),
            public_client: client(public),
            proxies: settings.proxies.clone(),
            response_timeout: settings.answer,
            elsewhere: Arc::new(settings.elsewhere.clone()),
            plain: settings.plain,
            reach: Arc::new(settings.reach.clone()),
        })
    }

    /// Sends the request and follows redirects, except those of servers inside the cluster: they belong to users, and the
    /// operator may reach addresses that its users may not. Any status is a response.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let host = host(&request.url);
        let slow = HttpError::TooSlow { host, limit: self.response_timeout };
        tokio::time::timeout(self.response_timeout, self.follow_redirects(request)).await.unwrap_or(Err(slow))
    }

    async fn follow_redirects(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_once(&request).await?;
            let followed = !matches!(*self.reach, Reach::Inside(_))
                && (request.method == Method::GET || request.method == Method::HEAD);
            if !(response.status.is_redirection() && followed && response.headers.contains_key(LOCATION)) {
                return Ok(response);
            }
            let next = redirected(&request.url, &response.headers)
                .ok_or_else(|| HttpError::BadRedirect { host: host(&request.url) })?;
            // The registry's credentials must not reach the server that stores the blobs.
            if next.authority() != request.url.authority() {
                request.headers.remove(AUTHORIZATION);
            }
            request.network = request.network.min(response.network);
            request.url = next;
        }
        Err(HttpError::TooManyRedirects { host: host(&request.url) })
    }

    async fn send_once(&self, request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut body = BytesMut::new();
        let parts = self.exchange(request, |_, piece| body.extend_from_slice(piece)).await?;
        let network = self.network_of(&request.url, &parts);
        Ok(HttpResponse { status: parts.status, headers: parts.headers, body: body.freeze(), network })
    }

    /// Sends the request and passes each piece of the response on as it arrives, so that a long one is never in memory as a
    /// whole. Redirects are not followed: they are responses like any other.
    pub async fn stream(
        &self,
        request: &HttpRequest,
        piece: impl FnMut(StatusCode, &[u8]),
    ) -> Result<(StatusCode, HeaderMap), HttpError> {
        let slow = HttpError::TooSlow { host: host(&request.url), limit: self.response_timeout };
        let sent = tokio::time::timeout(self.response_timeout, self.exchange(request, piece)).await;
        sent.unwrap_or(Err(slow)).map(|parts| (parts.status, parts.headers))
    }

    async fn exchange(&self, of: &HttpRequest, mut piece: impl FnMut(StatusCode, &[u8])) -> Result<Parts, HttpError> {
        let host = host(&of.url);
        let mut request = Request::new(Full::new(of.body.clone()));
        *request.method_mut() = of.method.clone();
        *request.uri_mut() = self.address(of)?;
        *request.headers_mut() = of.headers.clone();
        request.headers_mut().insert(USER_AGENT, AGENT);
        if let Reach::Inside(inside) = &*self.reach
            && let Some(name) = inside.host_header(&of.url)
        {
            request.headers_mut().insert(HOST, name);
        }
        let client = if of.network == Network::Public { &self.public_client } else { &self.client };
        let response = client.request(request).await.map_err(|error| explain(&host, &error))?;
        let (parts, body) = response.into_parts();
        let long = || HttpError::TooLong { host: host.clone(), limit: of.limit };
        let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        // The response to HEAD has no body; its length is that of the response to GET.
        if of.method != Method::HEAD && announced.is_some_and(|length| length > of.limit as u64) {
            return Err(long());
        }
        let mut body = Limited::new(body, of.limit);
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

    /// The address to connect to. Plain HTTP is refused unless the settings allow it. Names are checked when they are
    /// resolved, addresses here.
    fn address(&self, of: &HttpRequest) -> Result<Uri, HttpError> {
        let url = &of.url;
        if let Reach::Inside(inside) = &*self.reach {
            return inside.address(url).ok_or_else(|| HttpError::NotInside { host: host(url) });
        }
        let Some(other) = self.elsewhere(url) else {
            let allowed = url.scheme() == Some(&Scheme::HTTPS) || (self.plain && url.scheme() == Some(&Scheme::HTTP));
            if !allowed {
                return Err(HttpError::NotHttps { host: host(url) });
            }
            if let (Reach::UserNamed, Some(address)) = (&*self.reach, guard::literal(url)) {
                guard::check(address, of.network).map_err(|why| refused(host(url), why))?;
            }
            return Ok(url.clone());
        };
        let mut parts = url.clone().into_parts();
        parts.scheme = other.scheme().cloned();
        parts.authority = other.authority().cloned();
        Uri::from_parts(parts)
            .map_err(|_| HttpError::Failed { host: host(url), cause: "the address set for it has no host".to_owned() })
    }

    fn elsewhere(&self, url: &Uri) -> Option<&Uri> {
        let named = url.authority().map(|authority| authority.as_str().to_ascii_lowercase()).unwrap_or_default();
        self.elsewhere.get(&named)
    }

    /// Network of the server that answered. Behind a proxy, the addresses of names are unknown and count as public.
    fn network_of(&self, url: &Uri, parts: &Parts) -> Network {
        let connected = || {
            let direct = self.elsewhere(url).is_none() && proxy_for(self.proxies.as_ref(), url).is_none();
            parts.extensions.get::<HttpInfo>().filter(|_| direct).map(|info| info.remote_addr().ip())
        };
        guard::literal(url).or_else(connected).and_then(guard::network).unwrap_or(Network::Public)
    }
}

fn refused(host: String, why: RefusedAddress) -> HttpError {
    match why {
        RefusedAddress::Local => HttpError::LocalAddress { host },
        RefusedAddress::Private => HttpError::PrivateAddress { host },
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
        if let Some(why) = cause.downcast_ref() {
            return refused(host, *why);
        }
        if cause.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::ConnectionRefused) {
            return HttpError::Refused { host };
        }
    }
    HttpError::Failed { host, cause: deepest }
}
