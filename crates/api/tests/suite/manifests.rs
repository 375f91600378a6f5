//! Manifests to test with: the project's own fixtures, and files of a folder.
//! Comes in: a folder; goes out: its YAML files with their texts and objects, in the order of their names.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The first line of a manifest that must be refused.
pub const REFUSED: &str = "# refused: ";

pub struct Manifest {
    pub name: String,
    pub text: String,
    pub objects: Vec<Value>,
}

impl Manifest {
    /// The object of a file that holds one.
    pub fn object(&self) -> &Value {
        assert_eq!(self.objects.len(), 1, "{} holds one object", self.name);
        &self.objects[0]
    }
}

#[expect(clippy::disallowed_methods, reason = "a test may read files")]
pub fn read(path: &Path) -> Manifest {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let objects = serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    Manifest { name, text, objects }
}

/// The files of `folder` whose names are wanted; at least one.
pub fn manifests(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<Manifest> {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| wanted(&name.to_string_lossy())));
    paths.sort();
    assert!(!paths.is_empty(), "nothing to test in {}", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

/// The project's own manifests, for example `llamastack/valid`.
pub fn fixtures(folder: &str) -> Vec<Manifest> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    manifests(&folder, |name| name.ends_with(".yaml"))
}

/// `object` after it was read and written as a `K`.
pub fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::from_value::<K>(object.clone()).map(|typed| serde_json::to_value(typed).unwrap())
}
