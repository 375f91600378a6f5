//! Values that nobody may read in a log, a status or a dump.
//! Comes in: a secret value; goes out: the same, to those who ask for it by name.

use std::fmt;

/// A secret value. It cannot be serialised, and its `Debug` says nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sensitive<T>(T);

impl<T> Sensitive<T> {
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// For the one place that has to send it.
    pub fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Sensitive<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}
