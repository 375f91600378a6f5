//! Polls health, version and providers of one server.
//!
//! No credentials are sent, and no message quotes an answer.

use http::StatusCode;
use serde_json::Value;
use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::{HEALTH, PROVIDERS, VERSION, health_problem, providers, version};
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpError, HttpRequest};

/// Most bytes of an answer, ten times the settings of a hundred providers.
const MAX_RESPONSE_BYTES: usize = 512 * 1024;

enum PollFailure {
    Reach(HttpError),
    Status(StatusCode),
    /// The answer is not that of a Llama Stack server.
    Unexpected(String),
}

/// Polls one server. The first failure ends the poll.
pub async fn server(http: &Http, url: &str, place: &NamespacedName) -> ObservedServer {
    let explained = |path: &str, failure: PollFailure| {
        let sentence = sentence(path, &failure, place);
        if failure.is_of_server() { ObservedServer::Unhealthy(sentence) } else { ObservedServer::Failed(sentence) }
    };
    let well = match get(http, url, HEALTH).await {
        Ok(answer) => health_problem(&answer).map_or(Ok(()), |why| Err(PollFailure::Unexpected(why))),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = well {
        return explained(HEALTH, failure);
    }
    let version = match get(http, url, VERSION).await {
        Ok(answer) => version(&answer),
        Err(failure) if failure.is_closed() => None,
        Err(failure) => return explained(VERSION, failure),
    };
    let providers = match get(http, url, PROVIDERS).await {
        Ok(answer) => match providers(&answer) {
            Some(providers) => Some(providers),
            None => {
                return explained(
                    PROVIDERS,
                    PollFailure::Unexpected("the response is not a list of providers".to_owned()),
                );
            }
        },
        Err(failure) if failure.is_closed() => None,
        Err(failure) => return explained(PROVIDERS, failure),
    };
    ObservedServer::Answered { version, providers }
}

async fn get(http: &Http, url: &str, path: &str) -> Result<Value, PollFailure> {
    let address = format!("{url}{path}");
    let address = address.parse().map_err(|_| PollFailure::Unexpected(format!("{url:?} is not a valid URL")))?;
    let answer = http.send(HttpRequest::get(address, MAX_RESPONSE_BYTES)).await.map_err(PollFailure::Reach)?;
    if !answer.status.is_success() {
        return Err(PollFailure::Status(answer.status));
    }
    // The error of the library is left out: it quotes the answer.
    serde_json::from_slice(&answer.body).map_err(|_| PollFailure::Unexpected("the response is not JSON".to_owned()))
}

impl PollFailure {
    /// Whether the server is at fault. Everything else may be a problem between Steersman and the server alone.
    fn is_of_server(&self) -> bool {
        match self {
            Self::Status(_) | Self::Unexpected(_) => true,
            Self::Reach(error) => matches!(error, HttpError::Refused { .. } | HttpError::TooSlow { .. }),
        }
    }

    /// Whether the server requires credentials, which the operator does not have.
    fn is_closed(&self) -> bool {
        matches!(self, Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}

fn sentence(path: &str, failure: &PollFailure, NamespacedName { namespace, name }: &NamespacedName) -> String {
    let log = format!("kubectl logs -n {namespace} deployment/{name}");
    let (what, next) = match failure {
        PollFailure::Reach(error @ (HttpError::TooSlow { .. } | HttpError::Failed { .. })) => (
            error.to_string(),
            format!("Check its log ({log}), and whether a NetworkPolicy blocks Steersman's namespace"),
        ),
        PollFailure::Reach(error @ HttpError::Refused { .. }) => (
            error.to_string(),
            format!("Check its log ({log}) for the port that it listens on, and set the port in the spec to it"),
        ),
        PollFailure::Reach(error) => (error.to_string(), format!("Check its log ({log})")),
        PollFailure::Status(status) => {
            (format!("the server answered HTTP {}", status.as_u16()), format!("Check its log ({log})"))
        }
        PollFailure::Unexpected(what) => (
            what.clone(),
            format!("Check that the program on this port is a Llama Stack server, and read its log ({log})"),
        ),
    };
    format!("The pods are ready, but GET {path} failed: {what}. {next}. Steersman retries within 5 minutes")
}
