//! Builds the release binary so that its bytes do not depend on the folders of the clone, of Cargo or of the build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde::Deserialize;

use crate::command::{cargo, show};
use crate::operator::run_build;
use crate::{root, target_folder};

/// Time for `created`, in seconds since 1970, instead of the time of the commit.
const TIME_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`; a path may contain a space.
const FLAG_SEPARATOR: &str = "\u{1f}";

/// Paths in the binary in place of the folders of this machine.
const SOURCES: &str = "/steersman";
const CRATES: &str = "/crates";
const BUILD: &str = "/build";

/// The folder of images. Their build has flags of its own, and would otherwise replace the results of other builds.
pub fn folder() -> PathBuf {
    target_folder().join("image")
}

/// Builds the operator for an image.
pub fn build() -> Result<PathBuf> {
    let metadata = Metadata::read()?;
    let build_folder = folder().join("build");
    // Later flags win, and the build may be below the clone.
    let mut renamed = vec![(root(), SOURCES), (build_folder.clone(), BUILD)];
    renamed.extend(metadata.crate_folders().into_iter().map(|folder| (folder, CRATES)));
    let mut command = cargo();
    // The package alone: other packages of the workspace would add features to its dependencies.
    command.args(["build", "--release", "--locked", "--package", "steersman", "--bin", "steersman", "--target-dir"]);
    command.arg(&build_folder);
    rename_paths(&mut command, &renamed)?;
    let program = run_build(command)?;
    let folders: Vec<&Path> = renamed.iter().map(|(folder, _)| folder.as_path()).collect();
    check_for_paths(&program, &folders)?;
    Ok(program)
}

/// Sets the flags of the compilers, instead of those of the user.
fn rename_paths(command: &mut Command, renamed: &[(PathBuf, &str)]) -> Result<()> {
    let mut rust = Vec::new();
    let mut c = Vec::new();
    for (folder, name) in renamed {
        let folder = folder.to_str().with_context(|| format!("the path {} is not UTF-8", folder.display()))?;
        rust.push(format!("--remap-path-prefix={folder}={name}"));
        // The build scripts split their flags at spaces.
        ensure!(!folder.contains(' '), "the path {folder} has a space; clone the repository to a folder without one");
        c.push(format!("-ffile-prefix-map={folder}={name}"));
    }
    command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", rust.join(FLAG_SEPARATOR));
    command.env("CFLAGS", c.join(" "));
    Ok(())
}

/// Fails if the binary contains one of the folders: another clone would give another digest.
fn check_for_paths(program: &Path, folders: &[&Path]) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    for folder in folders {
        let text = format!("{}/", folder.display());
        if let Some(at) = find(&bytes, text.as_bytes()) {
            let end = bytes[at..].iter().take(200).position(|byte| !byte.is_ascii_graphic()).unwrap_or(200);
            bail!(
                "the binary contains the path {}, so that a build in another folder has another digest; find the build \
                 script or macro that writes it, and map it in xtask/src/image/release.rs",
                String::from_utf8_lossy(&bytes[at..at + end])
            );
        }
    }
    Ok(())
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// Output of `cargo metadata`, as far as it is needed.
#[derive(Deserialize)]
pub struct Metadata {
    pub packages: Vec<Package>,
}

#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    /// `None` for a crate of this repository.
    pub source: Option<String>,
    manifest_path: PathBuf,
}

impl Metadata {
    /// Downloads missing crates.
    pub fn read() -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--locked", "--format-version", "1"]);
        let output = command.output().with_context(|| format!("cannot run `{}`", show(&command)))?;
        ensure!(
            output.status.success(),
            "`{}` failed: {}",
            show(&command),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        serde_json::from_slice(&output.stdout).context("cannot read the output of `cargo metadata`")
    }

    /// The folders that contain the folders of crates from elsewhere, one for each registry.
    fn crate_folders(&self) -> BTreeSet<PathBuf> {
        let elsewhere = self.packages.iter().filter(|package| package.source.is_some());
        elsewhere.filter_map(|package| package.manifest_path.parent()?.parent().map(Path::to_owned)).collect()
    }
}

/// The commit of the sources.
#[derive(Clone, Debug, Default)]
pub struct Revision {
    /// Hash, with `-modified` if files were changed since. `None` if the sources are no clone of a repository.
    pub commit: Option<String>,
    /// `SOURCE_DATE_EPOCH`, or else the time of the commit.
    pub time: Option<Timestamp>,
}

impl Revision {
    pub fn read() -> Result<Self> {
        let seconds = match std::env::var(TIME_VARIABLE) {
            Ok(text) => {
                let seconds = text.trim().parse::<i64>().ok();
                Some(seconds.with_context(|| format!("{TIME_VARIABLE} is {text:?}, but must be seconds since 1970"))?)
            }
            Err(_) => git(&["show", "--no-patch", "--format=%ct", "HEAD"]).and_then(|text| text.parse::<i64>().ok()),
        };
        let modified = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
        let commit = git(&["rev-parse", "HEAD"]);
        Ok(Self {
            commit: commit.map(|commit| if modified { commit + "-modified" } else { commit }),
            time: seconds.map(Timestamp::from_second).transpose().context("the time of the sources is out of range")?,
        })
    }
}

/// Output of git in this clone. `None` without git, or if this is no clone.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_in_binary_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, b"\x7fELF\0/home/user/clone/src/main.rs\0rest").unwrap();
        let clone = Path::new("/home/user/clone");
        let error = check_for_paths(&program, &[Path::new("/other"), clone]).unwrap_err().to_string();
        assert!(error.starts_with("the binary contains the path /home/user/clone/src/main.rs, so"), "{error}");
        check_for_paths(&program, &[Path::new("/home/user/clo"), Path::new("/other")]).unwrap();
    }

    #[test]
    fn flags_name_every_folder() {
        let mut command = Command::new("cargo");
        rename_paths(&mut command, &[("/a".into(), "/x"), ("/a/b".into(), "/y")]).unwrap();
        let value = |name: &str| {
            let found = command.get_envs().find(|(variable, _)| *variable == name);
            found.unwrap().1.map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            value("CARGO_ENCODED_RUSTFLAGS").as_deref(),
            Some("--remap-path-prefix=/a=/x\u{1f}--remap-path-prefix=/a/b=/y")
        );
        assert_eq!(value("CFLAGS").as_deref(), Some("-ffile-prefix-map=/a=/x -ffile-prefix-map=/a/b=/y"));
        assert_eq!(value("RUSTFLAGS"), None);
    }
}
