//! The verdict of a family's rules on an object that a user wants to store.

/// Without errors, the object is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review<P> {
    pub errors: Vec<P>,
    pub warnings: Vec<String>,
}

impl<P> Default for Review<P> {
    fn default() -> Self {
        Self { errors: Vec::new(), warnings: Vec::new() }
    }
}
