//! Images in registries, as far as that can be known without asking one.
//! Comes in: image references, pull secrets and what a registry answered; goes out: where to ask, as whom, and which base
//! counts.

mod credentials;
mod labels_seen;
mod reference;

pub use credentials::{BadPullSecret, Credentials, Login, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON};
pub use labels_seen::{Choice, LabelsSeen, choose};
pub use reference::{BadReference, Reference, is_digest};
