//! Polls health, version and providers of one server.
//!
//! No credentials are sent, and no message quotes an answer.

use http::StatusCode;
use serde_json::Value;
use steersman_plan::llamastack::ObservedServer;
use steersman_plan::llamastack::server::{HEALTH, PROVIDERS, VERSION, illness, providers, version};
use steersman_reconcile::NamespacedName;
use steersman_runtime::http::{Http, HttpError, HttpRequest};

/// Most bytes of an answer, ten times the settings of a hundred providers.
const LIMIT: usize = 512 * 1024;

enum Failure {
    Reach(HttpError),
    Status(StatusCode),
    /// The answer is not that of a Llama Stack server.
    Odd(String),
}

/// Polls one server. The first failure ends the poll.
pub async fn server(http: &Http, url: &str, place: &NamespacedName) -> ObservedServer {
    let explained = |path: &str, failure: Failure| ObservedServer::Silent(sentence(path, &failure, place));
    let well = match get(http, url, HEALTH).await {
        Ok(answer) => illness(&answer).map_or(Ok(()), |why| Err(Failure::Odd(why))),
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
            None => return explained(PROVIDERS, Failure::Odd("the answer is no list of providers".to_owned())),
        },
        Err(failure) if failure.is_closed() => None,
        Err(failure) => return explained(PROVIDERS, failure),
    };
    ObservedServer::Answered { version, providers }
}

async fn get(http: &Http, url: &str, path: &str) -> Result<Value, Failure> {
    let address = format!("{url}{path}");
    let address = address.parse().map_err(|_| Failure::Odd(format!("{url:?} is not an address")))?;
    let answer = http.send(HttpRequest::get(address, LIMIT)).await.map_err(Failure::Reach)?;
    if !answer.status.is_success() {
        return Err(Failure::Status(answer.status));
    }
    // The error of the library is left out: it quotes the answer.
    serde_json::from_slice(&answer.body).map_err(|_| Failure::Odd("the answer is not JSON".to_owned()))
}

impl Failure {
    /// Whether the server requires credentials, which the operator does not have.
    fn is_closed(&self) -> bool {
        matches!(self, Self::Status(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN))
    }
}

fn sentence(path: &str, failure: &Failure, NamespacedName { namespace, name }: &NamespacedName) -> String {
    let log = format!("kubectl logs -n {namespace} deployment/{name}");
    let (what, next) = match failure {
        Failure::Reach(error @ (HttpError::TooSlow { .. } | HttpError::Failed { .. })) => (
            error.to_string(),
            format!("Look into its log ({log}), and whether a NetworkPolicy keeps Steersman's namespace from it"),
        ),
        Failure::Reach(error @ HttpError::Refused { .. }) => (
            error.to_string(),
            format!("Look into its log ({log}) for the port that it listens on, and set it as spec.networking.port"),
        ),
        Failure::Reach(error) => (error.to_string(), format!("Look into its log ({log})")),
        Failure::Status(status) => {
            (format!("the server answers {}", status.as_u16()), format!("Look into its log ({log})"))
        }
        Failure::Odd(what) => (what.clone(), format!("Is it a Llama Stack server that listens there? Its log: {log}")),
    };
    format!("The pods are ready, but GET {path} failed: {what}. {next}. It is asked again within minutes")
}
