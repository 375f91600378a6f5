//! Reads the base configuration of an image from its registry, once for each digest.

pub mod auth;
pub mod image;
pub mod layer;
mod session;
mod slots;

use std::time::Duration;

use steersman_plan::llamastack::config::base::{Base, LabelError};
use steersman_plan::oci::{BadReference, Credentials, ImageReference, Login};
use steersman_runtime::http::{Http, HttpError};

pub use image::{LAYER_LIMIT, MANIFEST_LIMIT};
pub use layer::INFLATED_LIMIT;
pub use session::Session;

use auth::Access;
use slots::Slots;

#[derive(Clone, Debug, PartialEq)]
pub struct ImageLabels {
    /// Digest of the image, or of the index with an image for each platform.
    pub digest: String,
    /// `Ok(None)`: the image has no base configuration.
    pub base: Result<Option<Base>, LabelError>,
}

/// Reason why a registry gave no labels. No text contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Reference(#[from] BadReference),
    #[error("registry {registry}: {cause}")]
    Reach { registry: String, cause: HttpError },
    #[error("registry {registry} did not return the labels of the image within {limit:?}")]
    TooSlow { registry: String, limit: Duration },
    #[error(
        "registry {registry} requires credentials for {repository} (HTTP {code}), and no pull secret has any; add a \
         Secret of type kubernetes.io/dockerconfigjson to imagePullSecrets of the server's service account"
    )]
    NoCredentials { registry: String, repository: String, code: u16 },
    #[error(
        "registry {registry} rejects the credentials of the pull secrets for {repository} (HTTP {code}); update the \
         Secret in imagePullSecrets of the server's service account"
    )]
    Denied { registry: String, repository: String, code: u16 },
    #[error("registry {registry} has no {what} in {repository} (HTTP 404); check the name and the tag of the image")]
    Absent { registry: String, repository: String, what: String },
    #[error("registry {registry} answered HTTP {code} to the request for {what}")]
    Answered { registry: String, what: String, code: u16 },
    #[error(
        "registry {registry} requires an authentication that Steersman does not support ({why}); use a pull secret with \
         user and password, or a registry with Basic or Bearer authentication"
    )]
    Challenge { registry: String, why: String },
    #[error(
        "registry {registry} names the token service {realm}, which is in another domain, so that the credentials of the pull \
         secrets are not sent to it; use a registry with a token service in its own domain, or remove the credentials for \
         {registry} from the pull secrets if the image is public"
    )]
    RealmElsewhere { registry: String, realm: String },
    #[error("registry {registry} sent {what} that cannot be used: {why}")]
    Unusable { registry: String, what: String, why: String },
}

pub struct Registry {
    http: Http,
    limit: Duration,
    slots: Slots,
}

impl Registry {
    /// `limit` is the time for one image, with all its requests.
    pub fn new(http: Http, limit: Duration) -> Self {
        Self { http, limit, slots: Slots::default() }
    }

    /// The base configuration of an image. The digest is read each time with these credentials, so that a cached result is
    /// returned only to those who may read the image. The rest is read once for each digest.
    pub async fn labelled(&self, image: &str, credentials: &Credentials) -> Result<ImageLabels, RegistryError> {
        let reference = ImageReference::parse(image)?;
        let slow = RegistryError::TooSlow { registry: reference.registry.clone(), limit: self.limit };
        let logins = credentials.logins(&reference);
        let read = self.read(image, &reference, &logins);
        tokio::time::timeout(self.limit, read).await.unwrap_or(Err(slow))
    }

    async fn read(
        &self,
        image: &str,
        reference: &ImageReference,
        logins: &[&Login],
    ) -> Result<ImageLabels, RegistryError> {
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
        reference: &ImageReference,
        login: Option<&Login>,
    ) -> Result<ImageLabels, RegistryError> {
        let mut session = Session::new(&self.http, reference, login, Access::Pull);
        let digest = image::digest(&mut session).await?;
        // A registry may claim any digest: a result is cached for its own repository alone.
        let slot = self.slots.get(&[&reference.registry, &reference.repository, &digest]);
        let read = slot.get_or_try_init(|| image::labelled(&mut session, &digest)).await?;
        let mut labelled = read.clone();
        if let Ok(Some(base)) = &mut labelled.base {
            image.clone_into(&mut base.name);
        }
        Ok(labelled)
    }
}
