//! Sends one query, with retries. Errors say what to do and contain no secret.

use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode, Uri};
use steersman_runtime::http::{HttpError, HttpRequest};

use super::answer::{Flaw, Reader, Sample};
use super::way::{Pass, form};

/// Limit of an answer; a hundred thousand samples with long names take half of it.
const LONGEST: usize = 64 * 1024 * 1024;
/// Delays before retries.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(1)];
/// Limit of a server's error message.
const LONGEST_SAYING: usize = 200;

enum Trouble {
    /// A retry may help.
    Passing(String),
    Lasting(String),
}

/// Converts each sample while the rest is still being read.
pub async fn ask<T>(pass: &Pass, query: &str, mut take: impl FnMut(Sample) -> Option<T>) -> Result<Vec<T>, String> {
    let mut pauses = PAUSES.iter();
    loop {
        match once(pass, query, &mut take).await {
            Ok(taken) => return Ok(taken),
            Err(Trouble::Lasting(why)) => return Err(pass.blot(&why)),
            Err(Trouble::Passing(why)) => match pauses.next() {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(pass.blot(&why)),
            },
        }
    }
}

async fn once<T>(pass: &Pass, query: &str, take: &mut impl FnMut(Sample) -> Option<T>) -> Result<Vec<T>, Trouble> {
    // Queries may be longer than a URL. Some servers and proxies support only GET.
    match send(pass, Method::POST, query, take).await? {
        (StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, ..) => {
            let (status, headers, read) = send(pass, Method::GET, query, take).await?;
            pass.judge(status, &headers, read)
        }
        (status, headers, read) => pass.judge(status, &headers, read),
    }
}

type Sent<T> = (StatusCode, HeaderMap, (Vec<T>, Result<(), Flaw>));

async fn send<T>(
    pass: &Pass,
    method: Method,
    query: &str,
    take: &mut impl FnMut(Sample) -> Option<T>,
) -> Result<Sent<T>, Trouble> {
    let (form, mut ask) = (form(query, pass.at), HttpRequest::get(pass.url.clone(), LONGEST));
    ask.headers.clone_from(&pass.headers);
    if method == Method::POST {
        ask.body = Bytes::from(form);
    } else {
        let asked = format!("{}?{form}", pass.url);
        ask.url = asked.parse().map_err(|_| Trouble::Lasting("the query is too long for an address".to_owned()))?;
    }
    ask.method = method;
    let (mut reader, mut taken) = (Reader::default(), Vec::new());
    let sent = pass.http.stream(&ask, |_, piece| reader.read(piece, |sample| taken.extend(take(sample)))).await;
    let (status, headers) = sent.map_err(unreached)?;
    Ok((status, headers, (taken, reader.finish())))
}

fn unreached(error: HttpError) -> Trouble {
    let said = error.to_string();
    match error {
        HttpError::NotTrusted { host, cause } if cause.contains("CaUsedAsEndEntity") => Trouble::Lasting(format!(
            "the certificate of {host} is that of an authority (CA:TRUE), which is not taken for a server's; give Prometheus \
             one that its authority has signed, with CA:FALSE, and name the authority in PROMETHEUS_CA_CERT_PATH"
        )),
        HttpError::NotTrusted { host, cause } => Trouble::Lasting(format!(
            "the certificate of {host} is not trusted ({cause}); set PROMETHEUS_CA_CERT_PATH to its authority, and \
             PROMETHEUS_SERVER_NAME if the certificate is for another name"
        )),
        // A retry would be as long, or as slow.
        HttpError::TooLong { .. } => Trouble::Lasting(said),
        HttpError::TooSlow { .. } => Trouble::Lasting(format!(
            "{said}; check that PROMETHEUS_BASE_URL is right and that Prometheus is not overloaded"
        )),
        HttpError::Refused { .. } => {
            Trouble::Passing(format!("{said}; check that Prometheus runs and that PROMETHEUS_BASE_URL is right"))
        }
        HttpError::Failed { cause, .. } if cause.contains("CertificateRequired") => Trouble::Lasting(format!(
            "{said}; it wants a certificate: set PROMETHEUS_CLIENT_CERT_PATH and PROMETHEUS_CLIENT_KEY_PATH"
        )),
        _ => Trouble::Passing(format!("{said}; check that PROMETHEUS_BASE_URL is right")),
    }
}

impl Pass {
    fn host(&self) -> &str {
        self.url.authority().map_or("", http::uri::Authority::as_str)
    }

    fn judge<T>(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        read: (Vec<T>, Result<(), Flaw>),
    ) -> Result<Vec<T>, Trouble> {
        let (host, (taken, flaw)) = (self.host(), read);
        match (status, flaw) {
            (StatusCode::OK, Ok(())) => Ok(taken),
            (StatusCode::UNAUTHORIZED, _) => Err(Trouble::Lasting(match &self.token_from {
                Some(from) => {
                    format!("{host} answers 401: it does not accept the token of {from}; give it a valid one")
                }
                None => format!(
                    "{host} answers 401: it wants a login; set PROMETHEUS_BEARER_TOKEN or PROMETHEUS_TOKEN_PATH"
                ),
            })),
            (StatusCode::FORBIDDEN, _) => Err(Trouble::Lasting(format!(
                "{host} answers 403: whoever asks may not read metrics; give the account of the token that right"
            ))),
            (StatusCode::NOT_FOUND, _) => Err(Trouble::Lasting(format!(
                "{host} answers 404: there is no Prometheus at {}; set PROMETHEUS_BASE_URL with the path that it is served at",
                self.url.path()
            ))),
            (status, _) if status.is_redirection() => {
                let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()?.parse::<Uri>().ok());
                let to = to.and_then(|to| to.host().map(str::to_owned)).unwrap_or_else(|| host.to_owned());
                Err(Trouble::Lasting(format!(
                    "{host} sends us on to {to}, as for a login; set PROMETHEUS_BASE_URL to where the API is, and a token"
                )))
            }
            (StatusCode::OK, Err(Flaw::Partial(warning))) => {
                Err(Trouble::Passing(format!("{host} answers with a part of the data only: {}", self.short(&warning))))
            }
            (status, Err(Flaw::Error(said))) => {
                let said = format!("{host} answers {}: {}", status.as_u16(), self.short(&said));
                Err(if status.is_server_error() { Trouble::Passing(said) } else { Trouble::Lasting(said) })
            }
            (status, _) if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(Trouble::Passing(format!("{host} answers {}; look at the log of Prometheus", status.as_u16())))
            }
            (status, _) => Err(Trouble::Lasting(format!(
                "{host} answers {} with what is no answer of Prometheus; check that PROMETHEUS_BASE_URL is its address",
                status.as_u16()
            ))),
        }
    }

    /// Hides secrets, which a server may repeat.
    fn blot(&self, said: &str) -> String {
        self.secrets
            .iter()
            .filter(|secret| !secret.is_empty())
            .fold(said.to_owned(), |said, secret| said.replace(secret, "…"))
    }

    /// Shortens a message to one line. Secrets are hidden before it is cut.
    fn short(&self, said: &str) -> String {
        let said = self.blot(said);
        let line: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_SAYING).collect();
        if line.len() < said.len() { format!("{line}…") } else { line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_error_names_the_remedy() {
        for (cause, expected) in [
            (
                "Other(OtherError(CaUsedAsEndEntity))",
                "give Prometheus one that its authority has signed, with CA:FALSE",
            ),
            (
                "invalid peer certificate: UnknownIssuer",
                "(invalid peer certificate: UnknownIssuer); set PROMETHEUS_CA_CERT",
            ),
        ] {
            let error = HttpError::NotTrusted { host: "p:9090".to_owned(), cause: cause.to_owned() };
            let Trouble::Lasting(told) = unreached(error) else { panic!("asked again, it would be the same") };
            assert!(told.starts_with("the certificate of p:9090 is") && told.contains(expected), "{told}");
        }
    }
}
