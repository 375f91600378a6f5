//! The first inputs of each fuzz target: the files in `fuzz/seeds`, and the examples and fixtures of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Folders with manifests.
const MANIFESTS: [&str; 2] = ["examples", "crates/api/tests/fixtures"];

/// Folders with other YAML of tenants.
const CONFIGURATIONS: [&str; 2] = ["crates/plan/tests/fixtures", "crates/plan/src/llamastack/config/base"];

/// Writes the seeds of a target into a folder and returns their number.
pub fn write(target: &str, folder: &Path) -> Result<usize> {
    let seeds = seeds(target)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (number, seed) in seeds.iter().enumerate() {
        let path = folder.join(number.to_string());
        fs::write(&path, seed).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(seeds.len())
}

/// The seeds of a target, in a fixed order.
pub fn seeds(target: &str) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for path in files(&root().join("fuzz/seeds").join(target))? {
        seeds.push(read(&path)?);
    }
    match target {
        "conversion" => seeds.extend(objects()?.iter().map(|object| object.to_string().into_bytes())),
        "admission_reviews" => {
            for object in objects()? {
                seeds.push(review(&object, None).to_string().into_bytes());
                seeds.push(review(&object, Some(&object)).to_string().into_bytes());
            }
        }
        "tenant_yaml" => {
            for path in yaml_files(&[&MANIFESTS[..], &CONFIGURATIONS[..]].concat())? {
                seeds.push(read(&path)?);
            }
        }
        "image_references" => seeds.extend(images()?.into_iter().map(String::into_bytes)),
        _ => {}
    }
    Ok(seeds)
}

fn review(object: &Value, old: Option<&Value>) -> Value {
    let (group, version) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).unwrap_or_default();
    let kind = json!({ "group": group, "version": version, "kind": object["kind"] });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": kind,
        "requestKind": kind,
        "resource": { "group": group, "version": version, "resource": "objects" },
        "name": object["metadata"]["name"],
        "namespace": "tenant",
        "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
        "userInfo": {},
        "object": object,
        "oldObject": old,
        "dryRun": false,
    } })
}

/// All objects in the examples and fixtures. Files that are no YAML on purpose are left out.
fn objects() -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for path in yaml_files(&MANIFESTS)? {
        let text = String::from_utf8(read(&path)?).unwrap_or_default();
        objects.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap_or_default());
    }
    objects.retain(|object| object["kind"].is_string());
    Ok(objects)
}

/// The images that the examples name.
fn images() -> Result<Vec<String>> {
    let mut images = Vec::new();
    for path in yaml_files(&MANIFESTS)? {
        let text = String::from_utf8(read(&path)?).unwrap_or_default();
        let image = |line: &str| line.trim().trim_start_matches("- ").strip_prefix("image: ").map(str::to_owned);
        images.extend(text.lines().filter_map(image).map(|image| image.trim_matches(['"', '\'']).to_owned()));
    }
    images.sort();
    images.dedup();
    Ok(images)
}

fn yaml_files(folders: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        found.extend(files(&root().join(folder))?);
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    Ok(found)
}

/// The folder of the repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All files below a folder, in a fixed order. None if there is no such folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let unreadable = || format!("cannot read the folder {}", folder.display());
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        entries.push(entry.with_context(unreadable)?.path());
    }
    entries.sort();
    let mut found = Vec::new();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn every_target_has_seeds_and_program() {
        let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
        for target in TARGETS {
            assert!(seeds(target.name).unwrap().len() >= 2, "{}", target.name);
            assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        }
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    }
}
