//! The list of components of the operator's image (SBOM), in the format CycloneDX 1.6: the crates that are linked into the
//! program, the standard library of Rust, the libraries of the system, and the list of CAs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::contents::CA_BUNDLE;
use super::layer::{digest_of, hex_of};
use super::release::{Metadata, Package, Revision};
use crate::command::{cargo, show};

const CA_CRATE: &str = "webpki-root-certs";

/// Licences of libraries that the program can be linked with, by the start of their file names. Packages of Debian do not
/// record theirs in a form for programs.
const SYSTEM_LICENSES: [(&str, &str); 2] =
    [("libgcc_s", "GPL-3.0-or-later WITH GCC-exception-3.1"), ("", "LGPL-2.1-or-later")];

/// A list of components.
pub struct Sbom {
    document: Value,
}

impl Sbom {
    /// `libraries` are those of the image.
    pub fn new(metadata: &Metadata, libraries: &[PathBuf], ca_bundle: &[u8], revision: &Revision) -> Result<Self> {
        let tree = Tree::read()?;
        let checksums = checksums(&fs::read_to_string(crate::root().join("Cargo.lock"))?);
        let mut components = Vec::new();
        for key in tree.edges.keys().filter(|key| **key != tree.top) {
            components.push(crate_component(find(metadata, key)?, "library", &checksums));
        }
        components.push(standard_library()?);
        components.extend(system_components(libraries)?);
        components.push(ca_component(metadata, ca_bundle)?);
        let dependencies: Vec<Value> = tree
            .edges
            .iter()
            .map(|(key, needs)| json!({ "ref": key.url(), "dependsOn": needs.iter().map(CrateKey::url).collect::<Vec<_>>() }))
            .collect();
        let mut document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": { "component": crate_component(find(metadata, &tree.top)?, "application", &checksums) },
            "components": components,
            "dependencies": dependencies,
        });
        if let Some(time) = revision.time {
            document["metadata"]["timestamp"] = json!(time.to_string());
        }
        Ok(Self { document })
    }

    /// Number of components, without the operator itself.
    pub fn components(&self) -> usize {
        self.document["components"].as_array().map_or(0, Vec::len)
    }

    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(&self.document)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Name and version of a crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrateKey {
    name: String,
    version: String,
}

impl CrateKey {
    /// The package URL, which is the identity of a component.
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }
}

/// The crates that are linked into the operator on this platform, with their dependencies.
struct Tree {
    top: CrateKey,
    edges: BTreeMap<CrateKey, BTreeSet<CrateKey>>,
}

impl Tree {
    /// Unlike `cargo metadata`, `cargo tree` resolves the features of this package alone, as the build of the image does.
    fn read() -> Result<Self> {
        let mut command = cargo();
        command.args(["tree", "--locked", "--package", "steersman", "--edges", "normal,no-proc-macro"]);
        command.args(["--prefix", "depth", "--format", " {p}"]);
        let output = command.output().with_context(|| format!("cannot run `{}`", show(&command)))?;
        ensure!(
            output.status.success(),
            "`{}` failed: {}",
            show(&command),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Self::parse(&String::from_utf8(output.stdout)?)
    }

    /// Parses lines of the form `DEPTH NAME vVERSION ...`. The dependencies of a crate follow its first line.
    fn parse(text: &str) -> Result<Self> {
        let mut path: Vec<CrateKey> = Vec::new();
        let mut edges: BTreeMap<CrateKey, BTreeSet<CrateKey>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let depth = words.next().and_then(|depth| depth.parse::<usize>().ok());
            let (name, version) = (words.next(), words.next().and_then(|version| version.strip_prefix('v')));
            let (Some(depth), Some(name), Some(version)) = (depth, name, version) else {
                bail!("cannot read the line {line:?} of `cargo tree`");
            };
            ensure!(depth <= path.len(), "the line {line:?} of `cargo tree` has no parent");
            let key = CrateKey { name: name.to_owned(), version: version.to_owned() };
            path.truncate(depth);
            edges.entry(key.clone()).or_default();
            if let Some(user) = path.last() {
                edges.entry(user.clone()).or_default().insert(key.clone());
            }
            path.push(key);
        }
        let top = path.into_iter().next().context("`cargo tree` printed nothing")?;
        Ok(Self { top, edges })
    }
}

fn find<'a>(metadata: &'a Metadata, key: &CrateKey) -> Result<&'a Package> {
    let mut packages = metadata.packages.iter();
    packages
        .find(|package| package.name == key.name && package.version == key.version)
        .with_context(|| format!("`cargo metadata` does not list {} {}", key.name, key.version))
}

fn crate_component(package: &Package, kind: &str, checksums: &BTreeMap<CrateKey, String>) -> Value {
    let key = CrateKey { name: package.name.clone(), version: package.version.clone() };
    let mut component = json!({
        "type": kind,
        "bom-ref": key.url(),
        "name": key.name,
        "version": key.version,
        "purl": key.url(),
    });
    if let Some(license) = &package.license {
        // Some crates still use the old form of an alternative.
        component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksums.get(&key) {
        component["hashes"] = sha256(checksum);
    }
    component
}

/// Checksums of the crates from registries, in `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<CrateKey, String> {
    let value = |block: &str, field: &str| {
        let mut lines = block.lines();
        let text = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(" = \"")?.strip_suffix('"'));
        text.map(str::to_owned)
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            let key = CrateKey { name: value(block, "name")?, version: value(block, "version")? };
            Some((key, value(block, "checksum")?))
        })
        .collect()
}

fn standard_library() -> Result<Value> {
    let mut command = Command::new("rustc");
    command.arg("-vV").current_dir(crate::root());
    let output = command.output().context("cannot run `rustc -vV`")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("release: "));
    let version = version.context("`rustc -vV` printed no release")?;
    let url = format!("pkg:generic/rust-std@{version}");
    Ok(json!({
        "type": "library",
        "bom-ref": url,
        "name": "rust-std",
        "version": version,
        "purl": url,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }))
}

/// A component for each package of the system with libraries in the image, with its files. A library that belongs to no
/// package that this machine knows is a component without a version.
fn system_components(libraries: &[PathBuf]) -> Result<Vec<Value>> {
    let mut packages: BTreeMap<Option<SystemPackage>, Vec<&Path>> = BTreeMap::new();
    for library in libraries {
        packages.entry(SystemPackage::of(library)).or_default().push(library);
    }
    let mut components = Vec::new();
    for (package, files) in packages {
        let described = files.iter().map(|file| file_component(file)).collect::<Result<Vec<Value>>>()?;
        let Some(package) = package else {
            components.extend(described);
            continue;
        };
        let url = package.url();
        components.push(json!({
            "type": "library",
            "bom-ref": url,
            "name": package.name,
            "version": package.version,
            "purl": url,
            "licenses": files.first().map(|file| json!([{ "expression": license_of(file) }])),
            "components": described,
        }));
    }
    Ok(components)
}

fn file_component(file: &Path) -> Result<Value> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(json!({
        "type": "file",
        "bom-ref": format!("file:{}", file.display()),
        "name": file.display().to_string(),
        "hashes": sha256(hex_of(&digest_of(&bytes))),
        "licenses": [{ "expression": license_of(file) }],
    }))
}

fn license_of(library: &Path) -> &'static str {
    let name = library.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    SYSTEM_LICENSES.iter().find(|(start, _)| name.starts_with(start)).map_or("", |(_, license)| license)
}

/// A package of Debian or a system derived from it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SystemPackage {
    distribution: String,
    name: String,
    version: String,
    architecture: String,
}

impl SystemPackage {
    /// The package with this file. `None` if the system has no dpkg, or the file belongs to no package.
    fn of(file: &Path) -> Option<Self> {
        let name = dpkg_query(&["--search", file.to_str()?])?;
        // For example `libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6`.
        let name = name.lines().next()?.rsplit_once(": ")?.0.to_owned();
        let shown = dpkg_query(&["--show", "--showformat", "${Package}\t${Version}\t${Architecture}", &name])?;
        let mut fields = shown.split('\t').map(str::to_owned);
        let release = fs::read_to_string("/etc/os-release").ok()?;
        let distribution = release.lines().find_map(|line| line.strip_prefix("ID="))?.trim_matches('"').to_owned();
        Some(Self { distribution, name: fields.next()?, version: fields.next()?, architecture: fields.next()? })
    }

    fn url(&self) -> String {
        let version = self.version.replace('+', "%2B");
        format!("pkg:deb/{}/{}@{version}?arch={}", self.distribution, self.name, self.architecture)
    }
}

fn dpkg_query(arguments: &[&str]) -> Option<String> {
    let output = Command::new("dpkg-query").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ca_component(metadata: &Metadata, bundle: &[u8]) -> Result<Value> {
    let mut packages = metadata.packages.iter();
    let package = packages.find(|package| package.name == CA_CRATE);
    let package = package.with_context(|| format!("`cargo metadata` does not list {CA_CRATE}"))?;
    let mut component = crate_component(package, "data", &BTreeMap::new());
    component["hashes"] = sha256(hex_of(&digest_of(bundle)));
    component["properties"] = json!([{ "name": "steersman:path", "value": CA_BUNDLE }]);
    Ok(component)
}

fn sha256(hex: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": hex }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{contents, shared_libraries};

    #[test]
    fn tree_lines_become_edges() {
        let text = "0 steersman v0.1.0 (/clone/crates/operator)\n1 axum v0.8.9\n2 bytes v1.12.1\n1 bytes v1.12.1 (*)\n";
        let tree = Tree::parse(text).unwrap();
        let key = |name: &str, version: &str| CrateKey { name: name.to_owned(), version: version.to_owned() };
        let (axum, bytes) = (key("axum", "0.8.9"), key("bytes", "1.12.1"));
        assert_eq!(tree.top, key("steersman", "0.1.0"));
        assert_eq!(tree.edges[&tree.top], BTreeSet::from([axum.clone(), bytes.clone()]));
        assert_eq!(tree.edges[&axum], BTreeSet::from([bytes]));
        assert!(Tree::parse("").is_err() && Tree::parse("warning: something").is_err());
        assert!(Tree::parse("0 a v1.0.0\n2 b v1.0.0\n").is_err());
    }

    #[test]
    fn lock_gives_checksums_of_registry_crates() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"12\"\n\n[[package]]\nname = \
                    \"own\"\nversion = \"0.1.0\"\n";
        let found = checksums(lock);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&CrateKey { name: "a".to_owned(), version: "1.0.0".to_owned() }], "12");
    }

    #[test]
    fn components_are_those_of_image() {
        let libraries = shared_libraries(&std::env::current_exe().unwrap()).unwrap();
        let metadata = Metadata::read().unwrap();
        let bundle = contents::ca_bundle();
        let sbom = Sbom::new(&metadata, &libraries, bundle.as_bytes(), &Revision::default()).unwrap();
        let again = Sbom::new(&metadata, &libraries, bundle.as_bytes(), &Revision::default()).unwrap();
        assert_eq!(sbom.bytes().unwrap(), again.bytes().unwrap());
        let components = sbom.document["components"].as_array().unwrap();
        let named: BTreeMap<&str, &Value> =
            components.iter().map(|component| (component["name"].as_str().unwrap(), component)).collect();
        assert_eq!(sbom.components(), components.len());
        for linked in ["tokio", "kube", "ring", "steersman-plan", "rust-std", CA_CRATE] {
            assert!(named.contains_key(linked), "{linked}");
        }
        for other in ["kube-derive", "serde_derive", "cc", "proptest", "tempfile", "steersman-testkit", "steersman"] {
            assert!(!named.contains_key(other), "{other} is not linked into the operator");
        }
        assert_eq!(named["tokio"]["hashes"][0]["content"].as_str().unwrap().len(), 64);
        let without_license: Vec<_> =
            components.iter().filter(|one| !one["licenses"][0]["expression"].is_string()).collect();
        assert!(without_license.is_empty(), "{without_license:?}");
        // References of the dependencies are identities of components.
        let mut identities: BTreeSet<&str> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(identities.len(), components.len(), "each identity is unique");
        identities.insert(sbom.document["metadata"]["component"]["bom-ref"].as_str().unwrap());
        for dependency in sbom.document["dependencies"].as_array().unwrap() {
            let needs = dependency["dependsOn"].as_array().unwrap().iter();
            for reference in needs.chain([&dependency["ref"]]) {
                assert!(identities.contains(reference.as_str().unwrap()), "{reference}");
            }
        }
        // Every library of the image is listed with its hash.
        let text = sbom.document["components"].to_string();
        for library in &libraries {
            let digest = digest_of(&fs::read(library).unwrap());
            assert!(text.contains(hex_of(&digest)), "{}", library.display());
        }
    }
}
