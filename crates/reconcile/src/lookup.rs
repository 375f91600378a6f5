//! The result of a read that may have failed.

use serde::Serialize;

/// A failed read stays visible, with its cause: it is never taken for "no" or for zero.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lookup<T> {
    Known(T),
    /// The cause, as a phrase that can follow a colon.
    Unknown(String),
}

impl<T> Lookup<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}
