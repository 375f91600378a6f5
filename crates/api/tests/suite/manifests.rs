//! Reads the manifests of a folder, in the order of their names: our fixtures, examples, and files of upstream projects.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// First line of a fixture that the API server must reject. The expected error follows the prefix.
pub const EXPECTED_ERROR_PREFIX: &str = "# refused: ";

pub struct Manifest {
    pub name: String,
    pub text: String,
    pub objects: Vec<Value>,
}

impl Manifest {
    /// The object of a file with a single object.
    pub fn object(&self) -> &Value {
        assert_eq!(self.objects.len(), 1, "{} must hold one object", self.name);
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

/// The files of `folder` whose names match. Fails if there are none.
pub fn manifests(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<Manifest> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| is_wanted(&name.to_string_lossy())));
    paths.sort();
    assert!(!paths.is_empty(), "nothing to test in {}", folder.display());
    paths.iter().map(|path| read(path)).collect()
}

/// Our fixtures in a folder such as `llamastack/valid`.
pub fn fixtures(folder: &str) -> Vec<Manifest> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder);
    manifests(&folder, |name| name.ends_with(".yaml"))
}

/// Deserializes `object` as a `K` and serializes it again.
pub fn round_trip_as<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::from_value::<K>(object.clone()).map(|typed| serde_json::to_value(typed).unwrap())
}
