//! Parses the Kubernetes version of an API server, with the suffixes of vendors.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Major and minor version; no API depends on the patch level or the vendor's suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ServerVersion {
    pub major: u32,
    pub minor: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the API server reports the version {given:?}, which is not of the form \"v1.33.5\"")]
pub struct UnreadableVersion {
    pub given: String,
}

impl ServerVersion {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// From the `major` and `minor` of `/version`; some vendors write a minor such as `33+`.
    pub fn from_parts(major: &str, minor: &str) -> Result<Self, UnreadableVersion> {
        number(major)
            .zip(number(minor.strip_suffix('+').unwrap_or(minor)))
            .map(|(major, minor)| Self { major, minor })
            .ok_or_else(|| UnreadableVersion { given: format!("{major}.{minor}") })
    }
}

impl FromStr for ServerVersion {
    type Err = UnreadableVersion;

    /// From a `gitVersion`: `v1.33.5-eks-3025e55`, `v1.34.1+k3s1`, `v1.36.3`.
    fn from_str(given: &str) -> Result<Self, UnreadableVersion> {
        let bare = given.strip_prefix('v').unwrap_or(given);
        let core = bare.split(['-', '+']).next().unwrap_or(bare);
        match core.split('.').map(number).collect::<Option<Vec<_>>>().as_deref() {
            Some(&[major, minor] | &[major, minor, _]) => Ok(Self { major, minor }),
            _ => Err(UnreadableVersion { given: given.to_owned() }),
        }
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// `u32::from_str` alone would accept "+1".
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
