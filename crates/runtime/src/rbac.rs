//! Access rules as data. Each part of the program states next to its calls which access they need.

/// A resource and the verbs that we use on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub group: &'static str,
    pub resource: &'static str,
    /// Names of the objects that the rule covers; empty for all. A list call complies by a field selector on the name.
    pub names: Vec<&'static str>,
    pub verbs: &'static [&'static str],
    pub namespaced: bool,
    /// The purpose, as it follows "needed to".
    pub why: &'static str,
}

impl Rule {
    /// All objects of a resource, in every namespace.
    pub fn namespaced(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { group, resource, names: Vec::new(), verbs, namespaced: true, why }
    }

    /// All objects of a resource that has no namespaces.
    pub fn cluster(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, resource, verbs, why) }
    }
}
