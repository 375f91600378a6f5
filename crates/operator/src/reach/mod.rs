//! The one way out: all HTTP that leaves the operator for anything but the API server.
//! Comes in: addresses to ask; goes out: answers of bounded length in bounded time, or one plain sentence on why not.

mod connect;
mod http_client;
mod inside;
pub mod registry;
mod tls;

pub use http_client::{Answer, Ask, Http, ReachError, Settings};
pub use inside::Inside;
pub use tls::{Identity, Trust};
