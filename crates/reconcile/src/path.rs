//! Paths of fields in an object: typed segments, rendered as `spec.providers.inference[1].id` only at the end.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field of an object, or a key of a map whose keys are written like fields.
    Field(Cow<'static, str>),
    Index(usize),
    /// A key of a map whose keys are written in brackets, such as the annotations.
    Key(String),
}

/// A path in the version that is stored. `FieldNames` renders it for authors of another version.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(Vec<Segment>);

/// Most bytes of a name in a path. Paths are copied for each value below them, and users may write long keys.
const MAX_SEGMENT_BYTES: usize = 512;

/// `path!(spec.networking.port)`.
#[macro_export]
macro_rules! path {
    ($($field:ident).+) => {
        $crate::FieldPath::default()$(.field(stringify!($field)))+
    };
}

impl FieldPath {
    #[must_use]
    pub fn field(&self, name: impl Into<Cow<'static, str>>) -> Self {
        let name = name.into();
        self.then(Segment::Field(match shortened(&name) {
            Some(short) => short.into(),
            None => name,
        }))
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.then(Segment::Index(index))
    }

    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.then(Segment::Key(shortened(&key).unwrap_or(key)))
    }

    /// The path of `inner`, seen from the value at this path.
    #[must_use]
    pub fn join(&self, inner: &[Segment]) -> Self {
        Self(self.0.iter().chain(inner).cloned().collect())
    }

    fn then(&self, segment: Segment) -> Self {
        self.join(&[segment])
    }

    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The path of the value that this one is in. The path of a whole object is its own.
    #[must_use]
    pub fn parent(&self) -> Self {
        Self(self.0.split_last().map(|(_, rest)| rest.to_vec()).unwrap_or_default())
    }

    /// The steps below `outer`. None: this is not a path inside it.
    pub fn below(&self, outer: &Self) -> Option<&[Segment]> {
        self.0.strip_prefix(outer.0.as_slice())
    }
}

/// A name that is too long, without its end.
fn shortened(name: &str) -> Option<String> {
    let end = name.floor_char_boundary(MAX_SEGMENT_BYTES);
    (end < name.len()).then(|| format!("{}…", &name[..end]))
}

/// Whether a name can follow a dot. Other names are put in brackets, as API servers do.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

impl fmt::Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if place == 0 => write!(out, "{name}")?,
                Segment::Field(name) if is_plain(name) => write!(out, ".{name}")?,
                Segment::Field(name) => write!(out, "[{name}]")?,
                Segment::Index(index) => write!(out, "[{index}]")?,
                Segment::Key(key) => write!(out, "[{key}]")?,
            }
        }
        Ok(())
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The counterpart of `Serialize`, for paths that travel to another program of ours. A number in brackets is an index.
impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let mut path = Self::default();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let bracket = rest.strip_prefix('[').and_then(|inside| inside.split_once(']'));
            if let Some((inside, after)) = bracket {
                path = match inside.parse() {
                    Ok(index) => path.index(index),
                    Err(_) => path.key(inside),
                };
                rest = after;
                continue;
            }
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            let (name, after) = name.split_at(end);
            if name.is_empty() {
                return Err(serde::de::Error::custom("not the path of a field"));
            }
            path = path.field(name.to_owned());
            rest = after;
        }
        Ok(path)
    }
}

/// The names that fields of the stored version have in the version an author wrote. Empty for the stored version.
#[derive(Clone, Debug, Default)]
pub struct FieldNames {
    moved: Vec<MovedField>,
    /// The stored version, which is named where the author's has no such field. Empty: the author's is the stored one.
    stored: &'static str,
}

/// A field whose path differs between the stored version and the author's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedField {
    pub stored: FieldPath,
    pub written: FieldPath,
    /// Whether fields inside this one have the same names in both versions.
    pub with_content: bool,
}

impl FieldNames {
    /// `stored` is the name of the stored version.
    pub fn new(stored: &'static str, moved: Vec<MovedField>) -> Self {
        Self { moved, stored }
    }

    pub fn moved(&self) -> &[MovedField] {
        &self.moved
    }

    /// The path in the author's version. `None` if that version has no such field.
    pub fn find(&self, path: &FieldPath) -> Option<FieldPath> {
        if self.stored.is_empty() {
            return Some(path.clone());
        }
        let common = match path.segments() {
            [] => true,
            [Segment::Field(part)] => part == "spec" || part == "metadata",
            [Segment::Field(part), ..] => part == "metadata",
            _ => false,
        };
        let inside = |moved: &MovedField| {
            let below = path.below(&moved.stored)?;
            (moved.with_content || below.is_empty()).then(|| (moved.stored.segments().len(), moved.written.join(below)))
        };
        // The table may have a field and, elsewhere, one that is inside it: the more exact row counts.
        let found = self.moved.iter().filter_map(inside).max_by_key(|(depth, _)| *depth);
        found.map(|(_, written)| written).or_else(|| common.then(|| path.clone()))
    }

    /// The path as text. A field that the author's version lacks keeps its stored path, with the version that has it.
    pub fn render(&self, path: &FieldPath) -> String {
        match self.find(path) {
            Some(written) => written.to_string(),
            None => format!("{path} (of {})", self.stored),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> FieldNames {
        let moved = |stored, written, with_content| MovedField { stored, written, with_content };
        FieldNames::new(
            "v2",
            vec![
                moved(path!(spec.workload), path!(spec.server), false),
                moved(path!(spec.workload.env), path!(spec.server.container.env), true),
                moved(path!(spec.workload.env.extra), path!(spec.extra), true),
                moved(path!(metadata.annotations).key("example.com/kept"), path!(spec.kept), true),
            ],
        )
    }

    #[test]
    fn path_renders_fields_indexes_and_keys() {
        let path = path!(spec.providers.inference).index(1).field("id");
        assert_eq!(path.to_string(), "spec.providers.inference[1].id");
        let annotation = path!(metadata.annotations).key("steersman.dev/x");
        assert_eq!(annotation.to_string(), "metadata.annotations[steersman.dev/x]");
        assert_eq!(path!(metadata.labels).key("app").to_string(), "metadata.labels[app]");
        assert_eq!(path!(spec.settings).field("a.b").field("c-d").to_string(), "spec.settings[a.b].c-d");
        assert_eq!(FieldPath::default().to_string(), "");
    }

    #[test]
    fn long_names_are_shortened() {
        let long = "ä".repeat(MAX_SEGMENT_BYTES);
        let path = path!(spec.settings).field(long.clone()).key(long);
        let text = path.to_string();
        assert_eq!(
            (text.len(), text.matches('…').count()),
            ("spec.settings[][]".len() + 2 * (MAX_SEGMENT_BYTES + 3), 2)
        );
    }

    #[test]
    fn serialized_path_is_its_text() {
        for path in
            [path!(spec.externalProviders.inference).index(12), path!(spec), path!(spec.a).key("b/c").field("d")]
        {
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(text, format!("{:?}", path.to_string()));
            assert_eq!(serde_json::from_str::<FieldPath>(&text).unwrap(), path);
        }
        assert!(serde_json::from_str::<FieldPath>("\"spec..a\"").is_err());
    }

    #[test]
    fn moved_field_takes_its_content_along() {
        let cases = [
            (path!(spec.workload.env).index(0).field("name"), "spec.server.container.env[0].name"),
            (path!(spec.workload.env.extra.x), "spec.extra.x"),
            (path!(spec.workload), "spec.server"),
            (path!(spec.workload.other), "spec.workload.other (of v2)"),
            (path!(spec.workloads), "spec.workloads (of v2)"),
            (path!(metadata.annotations).key("example.com/kept"), "spec.kept"),
            (path!(metadata.annotations).key("example.com/other"), "metadata.annotations[example.com/other]"),
            (path!(metadata.name), "metadata.name"),
            (path!(spec), "spec"),
        ];
        for (path, wanted) in cases {
            assert_eq!(names().render(&path), wanted);
            assert_eq!(FieldNames::default().render(&path), path.to_string());
        }
    }
}
