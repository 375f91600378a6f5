//! All HTTP that leaves the operator for anything but the API server. Answers are bounded in length and time.

mod connect;
mod http_client;
mod inside;
mod tls;

pub use http_client::{Http, HttpError, HttpRequest, HttpResponse, HttpSettings};
pub use inside::Inside;
pub use tls::{Identity, Trust};
