//! The CRDs that upstream projects publish, if the developer's machine has them next to the repository. Tests that need
//! them are reported as skipped otherwise.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// `None` after reporting a skip if the files are missing: they are not part of this repository.
pub fn files() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/upstream");
    if folder.is_dir() {
        return Some(folder);
    }
    steersman_testkit::skip::skip("comparison with the published CRDs", "no upstream files");
    None
}

#[derive(Deserialize)]
pub struct Crd {
    pub metadata: Metadata,
    pub spec: Spec,
}

#[derive(Deserialize)]
pub struct Metadata {
    pub name: String,
}

#[derive(Deserialize)]
pub struct Spec {
    pub group: String,
    pub names: Names,
    pub versions: Vec<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    pub kind: String,
    pub plural: String,
    pub short_names: Vec<String>,
}

#[derive(Deserialize)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
}

impl Crd {
    #[expect(clippy::disallowed_methods, reason = "a test may read files")]
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Published CRDs exceed the default limits of the parser, which protect servers from their callers.
        let options = serde_saphyr::options! { budget: None };
        serde_saphyr::from_str_with_options(&text, options)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn served(&self) -> Vec<&str> {
        self.spec.versions.iter().filter(|version| version.served).map(|version| &*version.name).collect()
    }

    pub fn stored(&self) -> Vec<&str> {
        self.spec.versions.iter().filter(|version| version.storage).map(|version| &*version.name).collect()
    }
}
