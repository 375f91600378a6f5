//! Building the local cluster's programs from the pinned Go module, once per version of it. In goes nothing but the module
//! and Go; out comes a folder of programs, or one sentence that says what is missing.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use steersman_testkit::binaries::{self, Binaries};
use steersman_testkit::cache::{self, RunFolder};

use crate::command::run_lines;
use crate::progress::Progress;

/// What a first build leaves behind: Go's two caches and the programs.
const FIRST_BUILD_BYTES: u64 = 6 << 30;

/// The programs of the local cluster, built now if they are not there yet.
pub fn programs() -> Result<Binaries> {
    if let Some(binaries) = Binaries::find()? {
        return Ok(binaries);
    }
    let target = binaries::folder()?;
    let parent = target.parent().context("the cluster's folder lies in the cache folder")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let _lock = lock(&parent.join("build.lock"), "building the local cluster")?;
    // Whoever held the lock may have built just what is needed.
    if let Some(binaries) = Binaries::find()? {
        return Ok(binaries);
    }
    build(&target)?;
    Binaries::find()?.with_context(|| format!("the programs were built but are not in {}", target.display()))
}

/// Whether the programs are there or can be built: what is missing is told before minutes have passed.
pub fn check() -> Result<()> {
    if Binaries::find()?.is_some() { Ok(()) } else { check_go() }
}

/// Holds the lock until the file is dropped; says what the other run is `doing` where that has to be waited for.
pub fn lock(path: &Path, doing: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("another run is {doing}; waiting for it ...");
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

fn build(target: &Path) -> Result<()> {
    check_go()?;
    warn_of_small_disk(target);
    // On the same file system as the target, so that the finished folder can be renamed into place.
    let run = RunFolder::create(&cache::runs()?)?;
    let built = run.path().join("built");
    fs::create_dir_all(&built)?;
    let mut progress = Progress::start("building the local cluster (once; several minutes)");
    let total = count_packages(run.path(), &mut progress)?;
    compile(run.path(), &built, total, &mut progress)?;
    for (name, wanted) in binaries::PROGRAMS {
        if name != wanted {
            fs::rename(built.join(name), built.join(wanted)).with_context(|| format!("the build made no {name}"))?;
        }
    }
    fs::rename(&built, target).with_context(|| format!("cannot move the programs to {}", target.display()))?;
    progress.done();
    Ok(())
}

/// `go` in the module's folder, with settings of ours where the user's could break the build.
fn go(temporary: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(crate::root().join("cluster"))
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "on")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .env("GOOS", "linux")
        .env("GOARCH", host_architecture())
        // Removed with the run, also when the build is killed.
        .env("GOTMPDIR", temporary);
    command
}

/// This machine's architecture in Go's words.
fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Go downloads every module that the packages need while it lists them.
fn count_packages(temporary: &Path, progress: &mut Progress) -> Result<usize> {
    let mut command = go(temporary);
    command.args(binaries::list_arguments());
    let mut packages = 0;
    let mut downloads = 0;
    let mut doing = "reading the module".to_owned();
    let mut said = Vec::new();
    let status = run_lines(&command, |line| {
        match line {
            Some(line) if line.starts_with("go: downloading ") => {
                downloads += 1;
                doing = format!("downloading module {downloads}: {}", line.trim_start_matches("go: downloading "));
            }
            Some(line) if line.contains(' ') => said.push(line.to_owned()),
            Some(_) => packages += 1,
            None => {}
        }
        progress.say(&doing);
    })?;
    if !status.success() {
        return Err(explain(&said));
    }
    Ok(packages)
}

fn compile(temporary: &Path, built: &Path, total: usize, progress: &mut Progress) -> Result<()> {
    let mut command = go(temporary);
    command.args(binaries::build_arguments(built));
    let mut done = 0;
    let mut doing = "compiling".to_owned();
    let mut said = Vec::new();
    let status = run_lines(&command, |line| {
        match line {
            Some(line) if line.contains(' ') => said.push(line.to_owned()),
            Some(line) => {
                done += 1;
                doing = format!("package {done} of at most {total}: {line}");
            }
            None => {}
        }
        progress.say(&doing);
    })?;
    if !status.success() {
        return Err(explain(&said));
    }
    Ok(())
}

fn check_go() -> Result<()> {
    let (major, minor) = binaries::required_go()?;
    let advice = format!("install Go {major}.{minor} or newer, put `go` on the PATH and run this again");
    let mut command = Command::new("go");
    // Inside the module, a Go that may fetch newer versions of itself answers with the version it would use.
    command.args(["env", "GOVERSION"]).current_dir(crate::root().join("cluster"));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("Go is missing, and the local cluster is built with it: {advice}");
        }
        Err(error) => return Err(error).context("cannot run `go env GOVERSION`"),
    };
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match binaries::go_version(&said) {
        Some(version) if version >= (major, minor) => Ok(()),
        Some(_) => bail!("this Go is too old for the local cluster ({said}): {advice}"),
        // A Go that may not replace itself refuses the module; its own words name both versions.
        None => bail!("this Go cannot build the local cluster ({}): {advice}", first_line(&output.stderr, &said)),
    }
}

fn first_line(stderr: &[u8], stdout: &str) -> String {
    let stderr = String::from_utf8_lossy(stderr);
    stderr.lines().chain(stdout.lines()).next().unwrap_or("it says nothing").to_owned()
}

/// One sentence for what usually goes wrong; Go's own last words for the rest.
fn explain(said: &[String]) -> anyhow::Error {
    let says = |words: &[&str]| said.iter().find(|line| words.iter().any(|word| line.contains(word)));
    if let Some(line) = says(&["no space left on device", "disk quota exceeded"]) {
        let places = places().iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        return anyhow!(
            "the disk is full: building the local cluster needs about {} GiB in {places}; free some room and run this again (Go says: {line})",
            FIRST_BUILD_BYTES >> 30
        );
    }
    let network =
        ["dial tcp", "no such host", "i/o timeout", "connection refused", "proxyconnect", "TLS handshake timeout"];
    if let Some(line) = says(&network) {
        return anyhow!(
            "the Go module proxy cannot be reached, and the local cluster's sources come from it: check the network and the setting `go env GOPROXY`, then run this again (Go says: {line})"
        );
    }
    let last = said.iter().rev().take(20).rev().cloned().collect::<Vec<_>>().join("\n");
    anyhow!("Go could not build the local cluster:\n{last}")
}

/// Where a build writes.
fn places() -> Vec<PathBuf> {
    let asked = Command::new("go").args(["env", "GOCACHE", "GOMODCACHE"]).output();
    let go: Vec<PathBuf> = asked
        .map(|output| String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
        .unwrap_or_default();
    cache::folder().into_iter().chain(go).collect()
}

/// Only a warning: with warm caches much less is needed.
fn warn_of_small_disk(target: &Path) {
    let existing = target.ancestors().find(|folder| folder.is_dir());
    let Some(Ok(disk)) = existing.map(rustix::fs::statvfs) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < FIRST_BUILD_BYTES {
        eprintln!(
            "warning: {:.1} GiB are free in {}; a first build of the local cluster needs about {} GiB",
            free as f64 / f64::from(1 << 30),
            target.display(),
            FIRST_BUILD_BYTES >> 30
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_usually_goes_wrong_is_one_sentence() {
        let cases = [
            ("compile: writing output: write /x/_pkg_.a: no space left on device", "the disk is full"),
            (
                "go: k8s.io/api@v0.36.3: Get \"https://proxy.example/k8s.io/api/@v/v0.36.3.mod\": dial tcp: lookup proxy.example: no such host",
                "the Go module proxy cannot be reached",
            ),
        ];
        for (said, expected) in cases {
            let message = explain(&["noise with words".to_owned(), said.to_owned()]).to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(message.contains("run this again") && !message.contains('\n'), "{message}");
        }
        let other = explain(&["./x.go:1: undefined: y".to_owned()]).to_string();
        assert!(other.contains("undefined: y"), "{other}");
    }
}
