//! One field of a spec and what it changes. `xtask check` makes pages of such rows.
//! Comes in: nothing; goes out: the form of the tables, which each family fills.

pub struct Row {
    /// Without `spec.` in front. `[]` is an entry of a list, `{}` a value under a name of the user's choice.
    pub field: &'static str,
    /// The rest of the spec, in YAML, as the family's test reads it.
    pub around: &'static str,
    pub set: &'static str,
    pub changed: &'static str,
    pub effect: &'static str,
    /// What differs, and where the field cannot be left out, that it cannot.
    pub shown: &'static str,
}

/// Fields of Kubernetes' own types, which are handled alike: where they begin, what they change, and where it shows.
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
