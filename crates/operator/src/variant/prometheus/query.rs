//! Sends one query, with retries. Errors say what to do and contain no secret.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};
use steersman_runtime::http::{HttpError, HttpRequest};

use super::client::{QuerySession, form};
use super::response::{ResponseError, ResponseParser, Sample};

/// Limit of an answer; a hundred thousand samples with long names take half of it.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Delays before retries.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Limit of a server's error message.
const MAX_MESSAGE_CHARS: usize = 200;

enum QueryError {
    /// A retry may help.
    Transient(String),
    Permanent(String),
}

/// Converts each sample while the rest is still being read.
pub async fn query<T>(
    session: &QuerySession,
    promql: &str,
    mut take: impl FnMut(Sample) -> Option<T>,
) -> Result<Vec<T>, String> {
    let mut pauses = RETRY_DELAYS.iter();
    loop {
        match once(session, promql, &mut take).await {
            Ok(taken) => return Ok(taken),
            Err(QueryError::Permanent(why)) => return Err(session.redact(&why)),
            Err(QueryError::Transient(why)) => match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(session.redact(&why)),
            },
        }
    }
}

async fn once<T>(
    session: &QuerySession,
    promql: &str,
    take: &mut impl FnMut(Sample) -> Option<T>,
) -> Result<Vec<T>, QueryError> {
    // Queries may be longer than a URL. Some servers and proxies support only GET.
    match send(session, Method::POST, promql, take).await? {
        (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, ..) => {
            let (status, headers, read) = send(session, Method::GET, promql, take).await?;
            session.check(status, &headers, read)
        }
        (status, headers, read) => session.check(status, &headers, read),
    }
}

type Sent<T> = (StatusCode, HeaderMap, (Vec<T>, Result<(), ResponseError>));

async fn send<T>(
    session: &QuerySession,
    method: Method,
    promql: &str,
    take: &mut impl FnMut(Sample) -> Option<T>,
) -> Result<Sent<T>, QueryError> {
    let (form, mut request) = (form(promql, session.at), HttpRequest::get(session.url.clone(), MAX_RESPONSE_BYTES));
    request.headers.clone_from(&session.headers);
    if method == Method::POST {
        request.body = Bytes::from(form);
    } else {
        let url = format!("{}?{form}", session.url);
        request.url = url.parse().map_err(|_| {
            QueryError::Permanent("the server accepts only GET, and the query is too long for a URL".to_owned())
        })?;
    }
    request.method = method;
    let (mut reader, mut taken) = (ResponseParser::default(), Vec::new());
    let sent = session.http.stream(&request, |_, piece| reader.read(piece, |sample| taken.extend(take(sample)))).await;
    let (status, headers) = sent.map_err(transport_error)?;
    Ok((status, headers, (taken, reader.finish())))
}

fn transport_error(error: HttpError) -> QueryError {
    let message = error.to_string();
    match error {
        HttpError::NotTrusted { host, cause } if cause.contains("CaUsedAsEndEntity") => QueryError::Permanent(format!(
            "the certificate of {host} is a CA certificate (CA:TRUE) and cannot be used as a server certificate; give \
             Prometheus a certificate with CA:FALSE that its CA has signed, and set PROMETHEUS_CA_CERT_PATH to the CA"
        )),
        HttpError::NotTrusted { host, cause } => QueryError::Permanent(format!(
            "the certificate of {host} is not trusted ({cause}); set PROMETHEUS_CA_CERT to its CA, and \
             PROMETHEUS_SERVER_NAME if the certificate is for another name"
        )),
        // A retry would be as long, or as slow.
        HttpError::TooLong { .. } => QueryError::Permanent(message),
        HttpError::TooSlow { .. } => QueryError::Permanent(format!(
            "{message}; check that PROMETHEUS_BASE_URL is right and that Prometheus is not overloaded"
        )),
        HttpError::Refused { .. } => QueryError::Transient(format!(
            "{message}; check that Prometheus runs and that PROMETHEUS_BASE_URL is right"
        )),
        HttpError::Failed { cause, .. } if cause.contains("CertificateRequired") => QueryError::Permanent(format!(
            "{message}; the server requires a client certificate: set PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH"
        )),
        _ => QueryError::Transient(format!("{message}; check that PROMETHEUS_BASE_URL is right")),
    }
}

impl QuerySession {
    fn host(&self) -> &str {
        self.url.authority().map_or("", http::uri::Authority::as_str)
    }

    fn check<T>(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        read: (Vec<T>, Result<(), ResponseError>),
    ) -> Result<Vec<T>, QueryError> {
        let (host, (taken, error)) = (self.host(), read);
        match (status, error) {
            (StatusCode::OK, Ok(())) => Ok(taken),
            (StatusCode::UNAUTHORIZED, _) => Err(QueryError::Permanent(match &self.token_from {
                Some(from) => {
                    format!("{host} answers 401: it rejects the token from {from}; replace the token")
                }
                None if self.headers.contains_key(AUTHORIZATION) => {
                    format!("{host} answers 401: it rejects the login in PROMETHEUS_BASE_URL; correct the login")
                }
                None => format!(
                    "{host} answers 401: it requires a login; set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH"
                ),
            })),
            (StatusCode::FORBIDDEN, _) => Err(QueryError::Permanent(format!(
                "{host} answers 403: the account of the token may not read metrics; give it that permission"
            ))),
            (StatusCode::NOT_FOUND, _) => Err(QueryError::Permanent(format!(
                "{host} answers 404: there is no Prometheus API at {}; set PROMETHEUS_BASE_URL to the address with its path",
                self.url.path()
            ))),
            (status, _) if status.is_redirection() => {
                let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()?.parse::<Uri>().ok());
                let to = to.and_then(|to| to.host().map(str::to_owned)).unwrap_or_else(|| host.to_owned());
                Err(QueryError::Permanent(format!(
                    "{host} redirects to {to}, probably to a login page; set PROMETHEUS_BASE_URL to the address of the API, and set a token"
                )))
            }
            (StatusCode::OK, Err(ResponseError::Partial(warning))) => {
                Err(QueryError::Transient(format!("{host} returned only part of the data: {}", self.excerpt(&warning))))
            }
            (status, Err(ResponseError::Error(message))) => {
                let message = format!("{host} answers {}: {}", status.as_u16(), self.excerpt(&message));
                Err(if status.is_server_error() {
                    QueryError::Transient(message)
                } else {
                    QueryError::Permanent(message)
                })
            }
            (status, _) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(QueryError::Transient(format!("{host} answers {}; check the log of Prometheus", status.as_u16())))
            }
            (status, _) => Err(QueryError::Permanent(format!(
                "{host} answers {}, but not as the Prometheus API does; check PROMETHEUS_BASE_URL",
                status.as_u16()
            ))),
        }
    }

    /// Hides secrets, which a server may repeat.
    fn redact(&self, message: &str) -> String {
        self.secrets
            .iter()
            .filter(|secret| !secret.is_empty())
            .fold(message.to_owned(), |message, secret| message.replace(secret, "…"))
    }

    /// Shortens a message to one line. Secrets are hidden before it is cut.
    fn excerpt(&self, message: &str) -> String {
        let message = self.redact(message);
        let line: String =
            message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_MESSAGE_CHARS).collect();
        if line.len() < message.len() { format!("{line}…") } else { line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_error_names_the_remedy() {
        for (cause, expected) in [
            ("Other(OtherError(CaUsedAsEndEntity))", "give Prometheus a certificate with CA:FALSE"),
            (
                "invalid peer certificate: UnknownIssuer",
                "(invalid peer certificate: UnknownIssuer); set PROMETHEUS_CA_CERT",
            ),
        ] {
            let error = HttpError::NotTrusted { host: "p:9090".to_owned(), cause: cause.to_owned() };
            let QueryError::Permanent(message) = transport_error(error) else { panic!("a retry cannot help") };
            assert!(message.starts_with("the certificate of p:9090 is") && message.contains(expected), "{message}");
        }
    }
}
