//! Image registries, asked for the base that an image carries in its labels.
//! Comes in: an image reference and the credentials to read it with; goes out: the image's digest and its base, each image
//! read once.

mod auth;
mod error;
mod image;
mod layer;
mod session;
mod slots;

use std::time::Duration;

use steersman_plan::llamastack::config::base::{Base, LabelError};
use steersman_plan::oci::{Credentials, Login, Reference};
use steersman_runtime::http::Http;

pub use error::RegistryError;
pub use image::{LAYER_LIMIT, MANIFEST_LIMIT};
pub use layer::INFLATED_LIMIT;

use session::Session;
use slots::Slots;

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// Of the image, or of the index that has one for each platform.
    pub digest: String,
    /// `Ok(None)`: the image carries no base.
    pub base: Result<Option<Base>, LabelError>,
}

/// Reads labels from registries.
pub struct Registry {
    http: Http,
    limit: Duration,
    slots: Slots,
}

impl Registry {
    /// `limit` bounds the reading of one image, with all its requests.
    pub fn new(http: Http, limit: Duration) -> Self {
        Self { http, limit, slots: Slots::default() }
    }

    /// The base of an image. The registry is asked for the digest each time, with these credentials: what others were
    /// allowed to read is handed out only to who may read it as well. The rest is asked once for each digest.
    pub async fn labelled(&self, image: &str, credentials: &Credentials) -> Result<Labelled, RegistryError> {
        let reference = Reference::parse(image)?;
        let slow = RegistryError::TooSlow { registry: reference.registry.clone(), limit: self.limit };
        let logins = credentials.logins(&reference);
        let read = self.read(image, &reference, &logins);
        tokio::time::timeout(self.limit, read).await.unwrap_or(Err(slow))
    }

    async fn read(&self, image: &str, reference: &Reference, logins: &[&Login]) -> Result<Labelled, RegistryError> {
        let mut attempt = self.read_as(image, reference, logins.first().copied()).await;
        for login in logins.iter().skip(1) {
            if !matches!(attempt, Err(RegistryError::Denied { .. })) {
                break;
            }
            attempt = self.read_as(image, reference, Some(login)).await;
        }
        attempt
    }

    async fn read_as(
        &self,
        image: &str,
        reference: &Reference,
        login: Option<&Login>,
    ) -> Result<Labelled, RegistryError> {
        let mut session = Session::new(&self.http, reference, login);
        let digest = image::digest(&mut session).await?;
        // A registry may claim any digest: what it says counts for its own repository alone.
        let slot = self.slots.get(&[&reference.registry, &reference.repository, &digest]);
        let read = slot.get_or_try_init(|| image::labelled(&mut session, &digest)).await?;
        let mut labelled = read.clone();
        if let Ok(Some(base)) = &mut labelled.base {
            image.clone_into(&mut base.name);
        }
        Ok(labelled)
    }
}
