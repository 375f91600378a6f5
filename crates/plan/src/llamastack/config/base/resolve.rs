//! Which base counts for an object: the labels of its image, then the embedded one.
//! Comes in: the distribution's name and what the labels gave; goes out: the base and its source, or why there is none.

use std::borrow::Cow;

use super::{Base, LabelError, base};

/// Where a base was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the labels of the image.
    OciLabel,
    /// In Steersman.
    Embedded,
}

impl Source {
    /// As status shows it.
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
    pub source: Source,
    /// Labels that were passed over because they are wrong; worth telling, though the embedded base serves.
    pub passed_over: Option<LabelError>,
}

/// Why there is no base. Its reason for conditions is `BaseConfigRequired`.
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

/// The base for a distribution's name (None: the object names an image), where `labelled` is the answer of
/// [`super::from_labels`], or `Ok(None)` where nobody looked at the image.
pub fn resolve(name: Option<&str>, labelled: Result<Option<Base>, LabelError>) -> Result<Resolved, NoBase> {
    let embedded = |passed_over| {
        let base = Cow::Borrowed(base(name?)?);
        Some(Resolved { base, source: Source::Embedded, passed_over })
    };
    match labelled {
        Ok(Some(base)) => Ok(Resolved { base: Cow::Owned(base), source: Source::OciLabel, passed_over: None }),
        Ok(None) => embedded(None).ok_or(NoBase::Unlabelled),
        Err(error) => embedded(Some(error.clone())).ok_or(NoBase::Labels(error)),
    }
}
