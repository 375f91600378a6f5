//! Chooses the base of an object: the labels of its image first, then the embedded one.

use std::borrow::Cow;

use super::{Base, LabelError, base};

/// Origin of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseSource {
    OciLabel,
    Embedded,
}

impl BaseSource {
    /// The value in the status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OciLabel => "oci-label",
            Self::Embedded => "embedded",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub base: Cow<'static, Base>,
    pub source: BaseSource,
    /// The error of invalid labels, reported although the embedded base is used.
    pub passed_over: Option<LabelError>,
}

/// Why there is no base. Conditions report it as `BaseConfigRequired`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBase {
    #[error(
        "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
         docs/configuration.md for details."
    )]
    Unlabelled,
    #[error(
        "Direct image references require either overrideConfig.configMapName or OCI config labels on the image. See \
         docs/configuration.md for details. The labels of this image cannot be used: {0}"
    )]
    Labels(LabelError),
}

/// `name` is the distribution; None: the object names an image. `labelled` is the result of [`super::from_labels`], or
/// `Ok(None)` if the labels were not read.
pub fn resolve(name: Option<&str>, labelled: Result<Option<Base>, LabelError>) -> Result<Resolved, NoBase> {
    let embedded = |passed_over| {
        let base = Cow::Borrowed(base(name?)?);
        Some(Resolved { base, source: BaseSource::Embedded, passed_over })
    };
    match labelled {
        Ok(Some(base)) => Ok(Resolved { base: Cow::Owned(base), source: BaseSource::OciLabel, passed_over: None }),
        Ok(None) => embedded(None).ok_or(NoBase::Unlabelled),
        Err(error) => embedded(Some(error.clone())).ok_or(NoBase::Labels(error)),
    }
}
