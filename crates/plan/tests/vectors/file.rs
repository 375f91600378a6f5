//! Loads vector files and compares results with them.

use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// Relative tolerance: vectors have all digits, and other machines round differently.
const TOLERANCE: f64 = 1e-9;

#[expect(clippy::disallowed_methods, reason = "a test reads the files that it compares with")]
pub fn load_vectors<T: DeserializeOwned>(name: &str) -> Option<T> {
    let default_folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let other_folder = std::env::var_os("STEERSMAN_VECTORS").map(PathBuf::from);
    let path = other_folder.as_ref().unwrap_or(&default_folder).join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if other_folder.is_some() && error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

pub fn nearly_equal(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0)
}

/// A case with another result than the recorded one.
pub struct Difference {
    pub case: String,
    pub detail: String,
}

/// Expects the differing cases to be exactly the listed ones, which have a name and a reason. In other vector folders no
/// further case may differ.
#[expect(clippy::disallowed_methods, reason = "a test asks which files it compares with")]
pub fn assert_known_differences(listed: &[(&str, &str)], found: &[Difference]) {
    let mut listed: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    let cases: Vec<&str> = found.iter().map(|difference| difference.case.as_str()).collect();
    if std::env::var_os("STEERSMAN_VECTORS").is_some() {
        listed.retain(|name| cases.contains(name));
    }
    let details: Vec<String> = found.iter().map(|one| format!("{}: {}", one.case, one.detail)).collect();
    assert_eq!(cases, listed, "{details:#?}");
}
