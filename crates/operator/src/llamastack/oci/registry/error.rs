//! Why a registry gave no labels.
//! Comes in: what went wrong; goes out: one sentence for the object's condition, without a word of a credential.

use std::time::Duration;

use steersman_plan::oci::BadReference;
use steersman_runtime::http::HttpError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Reference(#[from] BadReference),
    #[error("registry {registry}: {cause}")]
    Reach { registry: String, cause: HttpError },
    #[error("registry {registry} did not give the labels of the image within {limit:?}")]
    TooSlow { registry: String, limit: Duration },
    #[error(
        "registry {registry} wants credentials for {repository} ({code}) and no pull secret has any; name a Secret of type \
         kubernetes.io/dockerconfigjson in imagePullSecrets of the server's service account"
    )]
    NoCredentials { registry: String, repository: String, code: u16 },
    #[error(
        "registry {registry} does not accept the credentials of the pull secrets for {repository} ({code}); renew the Secret \
         that imagePullSecrets of the server's service account names"
    )]
    Denied { registry: String, repository: String, code: u16 },
    #[error("registry {registry} has no {what} in {repository} (404); check the image's name and tag")]
    Absent { registry: String, repository: String, what: String },
    #[error("registry {registry} answered {code} when asked for {what}")]
    Answered { registry: String, what: String, code: u16 },
    #[error("registry {registry} asks for an authentication that is not known here ({why})")]
    Challenge { registry: String, why: String },
    #[error("registry {registry} gave {what} that cannot be used: {why}")]
    Unusable { registry: String, what: String, why: String },
}
