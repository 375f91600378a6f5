//! A row of the tables of fields: one field of a spec and its effect. `xtask check` generates pages from the tables.

pub struct Row {
    /// Path without `spec.`. `[]` is an entry of a list, `{}` a value of a map.
    pub field: &'static str,
    /// The rest of the spec in YAML, in the form that the test of the API parses.
    pub around: &'static str,
    pub set: &'static str,
    pub changed: &'static str,
    pub effect: &'static str,
    /// The objects that change, and whether the field is required.
    pub shown: &'static str,
}

/// Fields of Kubernetes' own types that share a row: the prefix of their paths, their effect, and the objects that
/// change.
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
