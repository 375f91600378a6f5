//! Image references, pull credentials and the base of an image, as far as they need no registry.

mod credentials;
mod observed_labels;
mod reference;

pub use credentials::{BadPullSecret, Credentials, Login, TYPE_DOCKERCFG, TYPE_DOCKERCONFIGJSON};
pub use observed_labels::{Choice, ObservedLabels, choose};
pub use reference::{BadReference, ImageReference, is_digest};
