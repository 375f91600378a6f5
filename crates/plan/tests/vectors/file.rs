//! The files, and how they are compared with.

use std::path::PathBuf;

use serde::de::DeserializeOwned;

/// Relative, as the project's own figures are written with all their digits and other machines round otherwise.
const TOLERANCE: f64 = 1e-9;

#[expect(clippy::disallowed_methods, reason = "a test reads the files that it compares with")]
pub fn vectors<T: DeserializeOwned>(name: &str) -> Option<T> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let elsewhere = std::env::var_os("STEERSMAN_VECTORS").map(PathBuf::from);
    let path = elsewhere.as_ref().unwrap_or(&own).join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if elsewhere.is_some() && error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

pub fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()).max(1.0)
}

/// The cases in which the project answers otherwise are exactly the listed ones.
#[expect(clippy::disallowed_methods, reason = "a test asks which files it compares with")]
pub fn differ_only_in(listed: &[(&str, &str)], found: &[String]) {
    let listed: Vec<&str> = listed.iter().map(|(name, _)| *name).collect();
    let elsewhere = std::env::var_os("STEERSMAN_VECTORS").is_some();
    if !elsewhere {
        assert_eq!(found, listed, "cases in which the two ways differ");
    }
}
