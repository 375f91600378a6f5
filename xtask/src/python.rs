//! The Python packages that the real Llama Stack and the real profiler of Dynamo consist of, installed once per pinned set
//! of versions. In goes Python 3.12 and a package index; out come folders of packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use steersman_plan::llamastack::config::base::DISTRIBUTIONS;
use steersman_testkit::cache::{self, RunFolder};

use crate::command::run_lines;
use crate::local_cluster::lock;
use crate::progress::Progress;

const REQUIREMENTS: &str = "crates/plan/tests/llamastack-real/requirements.txt";
const DYNAMO: &str = "crates/operator/tests/dynamo-real/requirements.txt";

/// The pinned packages are built for this version; llama-stack itself needs at least it.
const VERSION: &str = "3.12";

/// A Python that can run the packages.
pub struct Python(PathBuf);

/// Where the packages are.
pub struct Packages(PathBuf);

impl Packages {
    /// What every version of llama-stack needs.
    pub fn shared(&self) -> PathBuf {
        self.0.join("shared")
    }

    /// One version of llama-stack.
    pub fn server(&self, version: &str) -> PathBuf {
        self.0.join(format!("llama-stack-{version}"))
    }
}

/// The versions of llama-stack that bases are verified with, each once.
pub fn server_versions() -> Vec<&'static str> {
    let mut versions: Vec<_> = DISTRIBUTIONS.iter().flat_map(|known| known.verified_with).copied().collect();
    versions.sort_unstable();
    versions.dedup();
    versions
}

/// Python 3.12, if there is one. A name on the PATH may be a version manager's, which runs only what was chosen: what
/// counts is that it answers. Where it does not, the manager's own folder is searched.
pub fn find() -> Option<Python> {
    let names = ["python3.12", "python3"].map(PathBuf::from);
    names.into_iter().chain(managed()).find_map(|candidate| answering(&candidate))
}

fn answering(candidate: &Path) -> Option<Python> {
    let ask = "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.executable)";
    let output = Command::new(candidate).args(["-I", "-c", ask]).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?;
    let (version, program) = answer.trim_end().split_once('\n')?;
    (output.status.success() && version == VERSION).then(|| Python(PathBuf::from(program)))
}

/// What pyenv has installed, the newest last patch first.
fn managed() -> Vec<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let Some(root) = of("PYENV_ROOT").or_else(|| of("HOME").map(|home| home.join(".pyenv"))) else { return Vec::new() };
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

    /// The packages of llama-stack, installed now if they are not there yet.
    pub fn packages(&self) -> Result<Packages> {
        let versions = server_versions();
        let what = format!("llama-stack {}", versions.join(", "));
        let folder = self.installed(REQUIREMENTS, &versions, &what, |folder, progress| {
            let packages = Packages(folder.to_owned());
            self.pip(&packages.shared(), &wanted(REQUIREMENTS), "llama-stack", progress)?;
            for version in &versions {
                let server = ["llama-stack", "llama-stack-api"].map(|package| format!("{package}=={version}"));
                self.pip(&packages.server(version), &server, "llama-stack", progress)?;
            }
            Ok(())
        })?;
        Ok(Packages(folder))
    }

    /// The packages of Dynamo's profiler, in one folder.
    pub fn dynamo(&self) -> Result<PathBuf> {
        self.installed(DYNAMO, &[], "Dynamo's profiler", |folder, progress| {
            self.pip(folder, &wanted(DYNAMO), "Dynamo's profiler", progress)
        })
    }

    /// The folder of a set of packages, made now if it is not there yet.
    fn installed(
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
        // Whoever held the lock may have installed just what is needed.
        if !target.is_dir() {
            // On the same file system as the target, so that it appears complete or not at all.
            let run = RunFolder::create(&cache::runs()?)?;
            let folder = run.path().join("packages");
            let mut progress = Progress::start(&format!("installing {what} (once)"));
            install(&folder, &mut progress)?;
            fs::rename(&folder, &target)
                .with_context(|| format!("cannot move the packages to {}", target.display()))?;
            progress.done();
        }
        Ok(target)
    }

    /// Installs exactly what is named: nothing that it depends on, and nothing that would have to be built here.
    fn pip(&self, into: &Path, wanted: &[String], whose: &str, progress: &mut Progress) -> Result<()> {
        let mut command = Command::new(self.program());
        command.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]);
        command.args(["--no-deps", "--only-binary", ":all:", "--target"]).arg(into).args(wanted);
        // Settings of the user's that forbid or bend this; where packages come from stays theirs to say. Root is no reason
        // for a warning: nothing of the system's is touched.
        command.env("PIP_REQUIRE_VIRTUALENV", "0").env("PIP_USER", "0").env("PIP_ROOT_USER_ACTION", "ignore");
        let mut said = Vec::new();
        let mut doing = "asking the package index".to_owned();
        let status = run_lines(&command, |line| {
            if let Some(line) = line {
                said.push(line.to_owned());
                // What follows these words is a path, or the names of all packages.
                let end = line.find(" (from ").or_else(|| line.find(" packages:").map(|at| at + " packages".len()));
                doing = line[..end.unwrap_or(line.len())].trim().to_owned();
            }
            progress.say(&doing);
        })?;
        if status.success() {
            return Ok(());
        }
        let error = said.iter().rev().find(|line| line.contains("ERROR") || line.contains("No module named"));
        bail!(
            "pip cannot install what {whose} needs: {}; check that `{} -m pip` runs and reaches a package index",
            error.or(said.last()).map_or("it says nothing", |line| line.as_str()),
            self.program().display()
        )
    }
}

/// All of a file of pins.
fn wanted(requirements: &str) -> [String; 2] {
    ["--requirement".to_owned(), crate::root().join(requirements).display().to_string()]
}

/// Everything that decides what gets installed.
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
    fn only_a_python_that_answers_with_the_right_version_counts() {
        let folder = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let right = script("right", "printf '3.12\\n/opt/python\\n'");
        assert_eq!(answering(&right).unwrap().0, Path::new("/opt/python"));
        // As a version manager says that none was chosen.
        assert!(answering(&script("none", "echo 'python3.12: command not found' >&2; exit 127")).is_none());
        assert!(answering(&script("newer", "printf '3.13\\n/opt/python\\n'")).is_none());
        assert!(answering(&folder.path().join("absent")).is_none());
    }

    #[test]
    fn another_pin_is_another_folder() {
        assert_eq!(key("a==1", &["1"]), key("a==1", &["1"]));
        assert_ne!(key("a==1", &["1"]), key("a==2", &["1"]));
        assert_ne!(key("a==1", &["1"]), key("a==1", &["2"]));
    }

    #[test]
    fn every_pin_is_exact() {
        for (file, server) in [(REQUIREMENTS, "llama"), (DYNAMO, "aisimulate")] {
            let text = fs::read_to_string(crate::root().join(file)).unwrap();
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert!(lines.len() > 50, "{file}");
            assert!(
                lines.iter().all(|line| line.split_once("==").is_some_and(|(_, version)| !version.is_empty())),
                "{text}"
            );
            // The server's versions come from the registry of distributions; the other is on no public index.
            assert!(!lines.iter().any(|line| line.starts_with(server)), "{file}: {server}");
        }
    }
}
