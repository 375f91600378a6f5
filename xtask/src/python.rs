//! Installs the Python packages of the real Llama Stack and of Dynamo's real profiler, once per pinned set of versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use steersman_plan::llamastack::config::base::DISTRIBUTIONS;
use steersman_testkit::cache::{self, RunFolder};

use crate::command::run_lines;
use crate::go_programs::lock;
use crate::progress::Progress;

const LLAMASTACK_REQUIREMENTS: &str = "crates/plan/tests/llamastack-real/requirements.txt";
const DYNAMO_REQUIREMENTS: &str = "crates/operator/tests/dynamo-real/requirements.txt";

/// The pinned packages are built for this version, which is also the oldest that llama-stack supports.
const VERSION: &str = "3.12";

/// Path of a Python that can run the packages.
pub struct Python(PathBuf);

/// Folder of the packages of llama-stack.
pub struct Packages(PathBuf);

impl Packages {
    /// Dependencies of all versions of llama-stack.
    pub fn shared(&self) -> PathBuf {
        self.0.join("shared")
    }

    /// The packages of one version of llama-stack itself.
    pub fn server(&self, version: &str) -> PathBuf {
        self.0.join(format!("llama-stack-{version}"))
    }
}

/// The versions of llama-stack that the bases are verified with, without duplicates.
pub fn server_versions() -> Vec<&'static str> {
    let mut versions: Vec<_> = DISTRIBUTIONS.iter().flat_map(|known| known.verified_with).copied().collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// Python 3.12, if it is installed. `python3.12` on the PATH may be a shim of pyenv, which fails unless this version is
/// selected; therefore each candidate is run, and the folder of pyenv is searched too.
pub fn find() -> Option<Python> {
    let names = ["python3.12", "python3"].map(PathBuf::from);
    names.into_iter().chain(pyenv_versions()).find_map(|candidate| probe(&candidate))
}

fn probe(candidate: &Path) -> Option<Python> {
    let script = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)";
    let output = Command::new(candidate).args(["-I", "-c", script]).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    let (version, program) = answer.trim_end().split_once('\n')?;
    (output.status.success() && version == VERSION).then(|| Python(PathBuf::from(program)))
}

/// The Pythons that pyenv has installed, the highest patch version first.
fn pyenv_versions() -> Vec<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let Some(root) = variable("PYENV_ROOT").or_else(|| variable("HOME").map(|home| home.join(".pyenv"))) else {
        return Vec::new();
    };
    let Ok(versions) = fs::read_dir(root.join("versions")) else { return Vec::new() };
    let mut found: Vec<PathBuf> = versions
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("3.12."))
        .map(|entry| entry.path().join("bin/python3.12"))
        .collect();
    found.sort();
    found.reverse();
    found
}

impl Python {
    pub fn program(&self) -> &Path {
        &self.0
    }

    /// The packages of llama-stack. They are installed if necessary.
    pub fn packages(&self) -> Result<Packages> {
        let versions = server_versions();
        let what = format!("llama-stack {}", versions.join(", "));
        let folder = self.install_once(LLAMASTACK_REQUIREMENTS, &versions, &what, |folder, progress| {
            let packages = Packages(folder.to_owned());
            self.pip(&packages.shared(), &requirement_arguments(LLAMASTACK_REQUIREMENTS), "llama-stack", progress)?;
            for version in &versions {
                let server = ["llama-stack", "llama-stack-api"].map(|package| format!("{package}=={version}"));
                self.pip(&packages.server(version), &server, "llama-stack", progress)?;
            }
            Ok(())
        })?;
        Ok(Packages(folder))
    }

    /// The folder with the packages of Dynamo's profiler. They are installed if necessary.
    pub fn dynamo(&self) -> Result<PathBuf> {
        self.install_once(DYNAMO_REQUIREMENTS, &[], "Dynamo's profiler", |folder, progress| {
            self.pip(folder, &requirement_arguments(DYNAMO_REQUIREMENTS), "Dynamo's profiler", progress)
        })
    }

    /// The folder of a set of packages. It is filled by `install` if it does not exist.
    fn install_once(
        &self,
        requirements: &str,
        versions: &[&str],
        what: &str,
        install: impl FnOnce(&Path, &mut Progress) -> Result<()>,
    ) -> Result<PathBuf> {
        let pins = fs::read_to_string(crate::root().join(requirements))
            .with_context(|| format!("cannot read {requirements}"))?;
        let parent = cache::folder()?.join("python");
        let target = parent.join(key(&pins, versions));
        if target.is_dir() {
            return Ok(target);
        }
        fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let _lock = lock(&parent.join("install.lock"), &format!("installing {what}"))?;
        // The run that held the lock before may have installed the packages.
        if !target.is_dir() {
            // A folder on the same file system as the target can be renamed, so that the target is never incomplete.
            let run = RunFolder::create(&cache::runs_folder()?)?;
            let folder = run.path().join("packages");
            let mut progress = Progress::start(&format!("installing {what} (once)"));
            install(&folder, &mut progress)?;
            fs::rename(&folder, &target)
                .with_context(|| format!("cannot move the packages to {}", target.display()))?;
            progress.done();
        }
        Ok(target)
    }

    /// Installs exactly these packages: no dependencies, and only packages that need no build.
    fn pip(&self, into: &Path, requirement_arguments: &[String], product: &str, progress: &mut Progress) -> Result<()> {
        let mut command = Command::new(self.program());
        command.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]);
        command.args(["--no-deps", "--only-binary", ":all:", "--target"]).arg(into).args(requirement_arguments);
        // Overrides settings of the user that would prevent this, but not the package index. The warning for root is
        // disabled, because no system folder is changed.
        command.env("PIP_REQUIRE_VIRTUALENV", "0").env("PIP_USER", "0").env("PIP_ROOT_USER_ACTION", "ignore");
        let mut output_lines = Vec::new();
        let mut activity = "querying the package index".to_owned();
        let status = run_lines(&command, |line| {
            if let Some(line) = line {
                output_lines.push(line.to_owned());
                // The rest of the line is a path, or the names of all packages.
                let end = line.find(" (from ").or_else(|| line.find(" packages:").map(|at| at + " packages".len()));
                activity = line[..end.unwrap_or(line.len())].trim().to_owned();
            }
            progress.update(&activity);
        })?;
        if status.success() {
            return Ok(());
        }
        let error = output_lines.iter().rev().find(|line| line.contains("ERROR") || line.contains("No module named"));
        bail!(
            "pip cannot install the packages of {product}: {}; check that `{} -m pip` runs and reaches a package index",
            error.or(output_lines.last()).map_or("no output", |line| line.as_str()),
            self.program().display()
        )
    }
}

/// Arguments of pip for all packages of a requirements file.
fn requirement_arguments(requirements: &str) -> [String; 2] {
    ["--requirement".to_owned(), crate::root().join(requirements).display().to_string()]
}

/// Hash of everything that determines the installed files.
fn key(requirements: &str, versions: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [requirements, &versions.join(" "), std::env::consts::ARCH, VERSION] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_accepts_only_matching_version() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let right = script("right", "printf '3.12\\n/opt/python\\n'");
        assert_eq!(probe(&right).unwrap().0, Path::new("/opt/python"));
        // A shim of pyenv fails like this if the version is not selected.
        assert!(probe(&script("none", "echo 'python3.12: command not found' >&2; exit 127")).is_none());
        assert!(probe(&script("newer", "printf '3.13\\n/opt/python\\n'")).is_none());
        assert!(probe(&folder.path().join("absent")).is_none());
    }

    #[test]
    fn key_changes_with_each_pin() {
        assert_eq!(key("a==1", &["1"]), key("a==1", &["1"]));
        assert_ne!(key("a==1", &["1"]), key("a==2", &["1"]));
        assert_ne!(key("a==1", &["1"]), key("a==1", &["2"]));
    }

    #[test]
    fn every_pin_is_exact() {
        for (file, server) in [(LLAMASTACK_REQUIREMENTS, "llama"), (DYNAMO_REQUIREMENTS, "aisimulate")] {
            let text = fs::read_to_string(crate::root().join(file)).unwrap();
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(lines.len() > 50, "{file}");
            assert!(
                lines.iter().all(|line| line.split_once("==").is_some_and(|(_, version)| !version.is_empty())),
                "{text}"
            );
            // The versions of llama-stack come from the registry of distributions; aisimulate is on no public index.
            assert!(!lines.iter().any(|line| line.starts_with(server)), "{file}: {server}");
        }
    }
}
