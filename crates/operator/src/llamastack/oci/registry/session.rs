//! Sends requests about one repository to a registry, and authenticates if the registry requires it.

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode, Uri};
use steersman_plan::oci::{ImageReference, Login};
use steersman_runtime::http::{Http, HttpError, HttpRequest, HttpResponse, Network};

use super::RegistryError;
use super::auth::{self, Access, Challenge};

/// Most bytes of an answer with a token.
const TOKEN_LIMIT: usize = 64 * 1024;

pub struct Session<'a> {
    http: &'a Http,
    pub reference: &'a ImageReference,
    login: Option<&'a Login>,
    access: Access,
    /// Header for the next requests.
    authorization: Option<HeaderValue>,
}

impl<'a> Session<'a> {
    pub fn new(http: &'a Http, reference: &'a ImageReference, login: Option<&'a Login>, access: Access) -> Self {
        let ready = match login {
            Some(Login::Token(token)) => auth::bearer(token),
            _ => None,
        };
        Self { http, reference, login, access, authorization: ready }
    }

    /// Reads `path` of the repository. `what` names the content in messages; `limit` is its size in bytes.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        accept: &'static str,
        what: &str,
        limit: usize,
    ) -> Result<HttpResponse, RegistryError> {
        let ImageReference { registry, repository, .. } = self.reference;
        let url = format!("https://{}/v2/{repository}/{path}", self.reference.host());
        let url: Uri = url.parse().map_err(|_| self.unusable(what, "its URL is not valid"))?;
        let mut ask = HttpRequest { method, ..HttpRequest::get(url, limit) };
        ask.headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let answer = self.request(&ask).await?;
        match answer.status {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(RegistryError::Absent {
                registry: registry.clone(),
                repository: repository.clone(),
                what: what.to_owned(),
            }),
            status => Err(self.answered(what, status)),
        }
    }

    /// Sends a request to the registry, and once more with credentials if it requires them. Any other status is a response.
    pub async fn request(&mut self, ask: &HttpRequest) -> Result<HttpResponse, RegistryError> {
        let mut answer = self.send(ask).await?;
        if answer.status == StatusCode::UNAUTHORIZED && self.authenticate(&answer).await? {
            answer = self.send(ask).await?;
        }
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.denied(answer.status)),
            _ => Ok(answer),
        }
    }

    async fn send(&self, ask: &HttpRequest) -> Result<HttpResponse, RegistryError> {
        let mut ask = ask.clone();
        if let Some(authorization) = &self.authorization {
            ask.headers.insert(AUTHORIZATION, authorization.clone());
        }
        self.http.send(ask).await.map_err(|cause| self.unreached(cause))
    }

    /// Answers the challenge. False: there are no other credentials than those that were refused.
    async fn authenticate(&mut self, refused: &HttpResponse) -> Result<bool, RegistryError> {
        let challenge = auth::challenge(&refused.headers);
        let challenge =
            challenge.map_err(|why| RegistryError::Challenge { registry: self.reference.registry.clone(), why })?;
        let shown = match (challenge, self.login) {
            (_, Some(Login::Token(_))) | (Challenge::Basic, None) => None,
            (Challenge::Basic, Some(Login::Password { user, password })) => auth::basic(user, password),
            (Challenge::Basic, Some(Login::Identity(_))) => {
                let why = "Basic, but the pull secret has an identity token".to_owned();
                return Err(RegistryError::Challenge { registry: self.reference.registry.clone(), why });
            }
            (Challenge::Bearer { realm, .. }, Some(_)) if !auth::same_domain(&realm, self.reference.host()) => {
                let realm = realm.host().unwrap_or_default().to_owned();
                return Err(RegistryError::RealmElsewhere { registry: self.reference.registry.clone(), realm });
            }
            (Challenge::Bearer { realm, service }, login) => {
                self.token(&realm, refused.network, service.as_deref(), login).await?
            }
        };
        let new = shown.is_some() && shown != self.authorization;
        self.authorization = shown.or(self.authorization.take());
        Ok(new)
    }

    /// Requests a token from the realm that the registry in `network` named.
    async fn token(
        &self,
        realm: &Uri,
        network: Network,
        service: Option<&str>,
        login: Option<&Login>,
    ) -> Result<Option<HeaderValue>, RegistryError> {
        let repository = &self.reference.repository;
        let mut ask = HttpRequest { network, ..HttpRequest::get(realm.clone(), TOKEN_LIMIT) };
        match login {
            Some(Login::Identity(token)) => {
                ask.method = Method::POST;
                ask.body = Bytes::from(auth::identity_form(service, repository, self.access, token));
                ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            }
            login => {
                let joint = if realm.query().is_some() { '&' } else { '?' };
                let url = format!("{realm}{joint}{}", auth::token_query(service, repository, self.access));
                ask.url = url.parse().map_err(|_| self.unusable("a token URL", "it is not valid"))?;
                if let Some(Login::Password { user, password }) = login
                    && let Some(shown) = auth::basic(user, password)
                {
                    ask.headers.insert(AUTHORIZATION, shown);
                }
            }
        }
        let answer = self.http.send(ask).await.map_err(|cause| self.unreached(cause))?;
        match answer.status {
            status if status.is_success() => {
                let token = auth::token(&answer.body).as_ref().and_then(auth::bearer);
                token.map(Some).ok_or_else(|| self.unusable("a token response", "it contains no token"))
            }
            // Token services answer wrong credentials with any of these.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
                Err(self.denied(answer.status))
            }
            status => Err(self.answered("a token", status)),
        }
    }

    fn denied(&self, status: StatusCode) -> RegistryError {
        let (registry, repository) = (self.reference.registry.clone(), self.reference.repository.clone());
        match self.login {
            Some(_) => RegistryError::Denied { registry, repository, code: status.as_u16() },
            None => RegistryError::NoCredentials { registry, repository, code: status.as_u16() },
        }
    }

    pub fn answered(&self, what: &str, status: StatusCode) -> RegistryError {
        RegistryError::Answered {
            registry: self.reference.registry.clone(),
            what: what.to_owned(),
            code: status.as_u16(),
        }
    }

    fn unreached(&self, cause: HttpError) -> RegistryError {
        RegistryError::Reach { registry: self.reference.registry.clone(), cause }
    }

    pub fn unusable(&self, what: &str, why: &str) -> RegistryError {
        RegistryError::Unusable {
            registry: self.reference.registry.clone(),
            what: what.to_owned(),
            why: why.to_owned(),
        }
    }
}
