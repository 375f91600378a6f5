//! Image references, pull credentials and the base of an image, as far as they need no registry.

mod credentials;
mod labels_seen;
mod reference;

pub use credentials::{BadPullSecret, Credentials, Login, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON};
pub use labels_seen::{Choice, LabelsSeen, choose};
pub use reference::{BadReference, Reference, is_digest};
