//! All HTTP requests of the operator except those to the API server. Responses are bounded in length and time.

mod connect;
mod guard;
mod http_client;
mod inside;
mod tls;

pub use guard::{Network, Reach};
pub use http_client::{Http, HttpError, HttpRequest, HttpResponse, HttpSettings};
pub use inside::Inside;
pub use tls::{Identity, Trust};
