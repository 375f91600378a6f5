//! Row of the tables that state the effect of each field of a spec. `xtask check` generates pages from them.

pub struct Row {
    /// Path without `spec.`. `[]` is an entry of a list, `{}` a value under a key that the user chooses.
    pub field: &'static str,
    /// The rest of the spec, in YAML, as the family's test reads it.
    pub around: &'static str,
    pub set: &'static str,
    pub changed: &'static str,
    pub effect: &'static str,
    /// Parts of the output that differ, followed by `; refused without` if the field is required.
    pub shown: &'static str,
}

/// Fields of a Kubernetes type, which are all handled alike: path prefix, effect, and parts of the output that differ.
pub type Copied = (&'static str, &'static str, &'static str);

pub const fn row(
    field: &'static str,
    around: &'static str,
    [set, changed]: [&'static str; 2],
    effect: &'static str,
    shown: &'static str,
) -> Row {
    Row { field, around, set, changed, effect, shown }
}
