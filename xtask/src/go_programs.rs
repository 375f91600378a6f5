//! Builds the programs of a pinned Go module, once per version of the module.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use steersman_testkit::binaries::{self, Binaries, CLUSTER, GoModule, HELM};
use steersman_testkit::cache::{self, RunFolder};

use crate::command::run_lines;
use crate::progress::Progress;

/// The programs of the local cluster. They are built if necessary.
pub fn cluster_programs() -> Result<Binaries> {
    build_once(&CLUSTER, &[])
}

/// The helm that renders and installs the chart. It is built if necessary.
pub fn helm() -> Result<Binaries> {
    build_once(&HELM, &[])
}

/// The programs of a Go module. They are built if necessary, with `environment` added to the variables of Go.
pub fn build_once(module: &GoModule, environment: &[(&str, String)]) -> Result<Binaries> {
    if let Some(binaries) = module.find()? {
        return Ok(binaries);
    }
    let target = module.target_folder()?;
    let parent = target.parent().with_context(|| format!("{} has no parent folder", target.display()))?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let _lock = lock(&parent.join("build.lock"), &format!("building {}", module.title))?;
    // The run that held the lock before may have built the programs.
    if let Some(binaries) = module.find()? {
        return Ok(binaries);
    }
    Build { module, environment }.run(&target)?;
    module.find()?.with_context(|| format!("the programs were built, but are not in {}", target.display()))
}

/// Checks that the programs of the local cluster exist or can be built, so that a missing Go is reported before other steps
/// run.
pub fn check() -> Result<()> {
    if CLUSTER.find()?.is_some() { Ok(()) } else { check_go(&CLUSTER) }
}

/// Locks the file until it is dropped. If another run holds the lock, prints its `activity` and waits.
pub fn lock(path: &Path, activity: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            eprintln!("another run is {activity}; waiting until it is done ...");
            file.lock()?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    Ok(file)
}

/// One build of a module's programs.
struct Build<'a> {
    module: &'a GoModule,
    environment: &'a [(&'a str, String)],
}

impl Build<'_> {
    fn run(&self, target: &Path) -> Result<()> {
        check_go(self.module)?;
        warn_of_small_disk(self.module, target);
        // On the same file system as the target, so that the finished folder can be renamed into place.
        let run = RunFolder::create(&cache::runs_folder()?)?;
        let built = run.path().join("built");
        fs::create_dir_all(&built)?;
        let mut progress = Progress::start(&format!("building {} (once; several minutes)", self.module.title));
        let total = self.count_packages(run.path(), &mut progress)?;
        self.compile(run.path(), &built, total, &mut progress)?;
        for (name, wanted) in self.module.programs {
            if name != wanted {
                fs::rename(built.join(name), built.join(wanted))
                    .with_context(|| format!("the build made no {name}"))?;
            }
        }
        fs::rename(&built, target).with_context(|| format!("cannot move the programs to {}", target.display()))?;
        progress.done();
        Ok(())
    }

    /// `go` in the folder of the module. Settings of the user that could break the build are overridden.
    fn go(&self, temporary: &Path) -> Command {
        let mut command = Command::new("go");
        command
            .current_dir(crate::root().join(self.module.folder))
            .env("CGO_ENABLED", if self.module.cgo { "1" } else { "0" })
            .env("GO111MODULE", "on")
            .env("GOFLAGS", "-mod=readonly")
            .env("GOWORK", "off")
            .env("GOOS", "linux")
            .env("GOARCH", host_architecture())
            // The folder is removed with the run, even if the build is killed.
            .env("GOTMPDIR", temporary)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Lists the packages to compile. Go downloads the modules while it lists their packages.
    fn count_packages(&self, temporary: &Path, progress: &mut Progress) -> Result<usize> {
        let mut command = self.go(temporary);
        command.args(self.module.list_arguments());
        let mut packages = 0;
        let mut downloads = 0;
        let mut activity = "reading the module".to_owned();
        let mut output_lines = Vec::new();
        let status = run_lines(&command, |line| {
            match line {
                Some(line) if line.starts_with("go: downloading ") => {
                    downloads += 1;
                    activity =
                        format!("downloading module {downloads}: {}", line.trim_start_matches("go: downloading "));
                }
                Some(line) if line.contains(' ') => output_lines.push(line.to_owned()),
                Some(_) => packages += 1,
                None => {}
            }
            progress.update(&activity);
        })?;
        if !status.success() {
            return Err(explain(self.module, &output_lines));
        }
        Ok(packages)
    }

    fn compile(&self, temporary: &Path, built: &Path, total: usize, progress: &mut Progress) -> Result<()> {
        let mut command = self.go(temporary);
        command.args(self.module.build_arguments(built));
        let mut done = 0;
        let mut activity = "compiling".to_owned();
        let mut output_lines = Vec::new();
        let status = run_lines(&command, |line| {
            match line {
                Some(line) if line.contains(' ') => output_lines.push(line.to_owned()),
                Some(line) => {
                    done += 1;
                    activity = format!("package {done} of at most {total}: {line}");
                }
                None => {}
            }
            progress.update(&activity);
        })?;
        if !status.success() {
            return Err(explain(self.module, &output_lines));
        }
        Ok(())
    }
}

/// The architecture of this machine by its Go name, which images use too.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn check_go(module: &GoModule) -> Result<()> {
    let (major, minor) = module.required_go()?;
    let title = module.title;
    let advice = format!("install Go {major}.{minor} or newer, put `go` on the PATH and run this again");
    let mut command = Command::new("go");
    // In the folder of the module, a Go that may download another toolchain prints the version that it would use.
    command.args(["env", "GOVERSION"]).current_dir(crate::root().join(module.folder));
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("Go is not installed, but {title} is built with it: {advice}");
        }
        Err(error) => return Err(error).context("cannot run `go env GOVERSION`"),
    };
    let version_text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    match binaries::go_version(&version_text) {
        Some(version) if version >= (major, minor) => Ok(()),
        Some(_) => bail!("the installed Go is too old for {title} ({version_text}): {advice}"),
        // A Go that must not download another toolchain rejects the module. Its message names both versions.
        None => {
            bail!("the installed Go cannot build {title} ({}): {advice}", first_line(&output.stderr, &version_text))
        }
    }
}

fn first_line(stderr: &[u8], stdout: &str) -> String {
    let stderr = String::from_utf8_lossy(stderr);
    stderr.lines().chain(stdout.lines()).next().unwrap_or("no output").to_owned()
}

/// Returns one sentence with advice for a common cause; otherwise the end of Go's output.
fn explain(module: &GoModule, output_lines: &[String]) -> anyhow::Error {
    let title = module.title;
    let find_line = |words: &[&str]| output_lines.iter().find(|line| words.iter().any(|word| line.contains(word)));
    if let Some(line) = find_line(&["no space left on device", "disk quota exceeded"]) {
        let folders = build_folders().iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        return anyhow!(
            "the disk is full: building {title} needs about {} GiB in {folders}; free disk space and run this again (output of Go: {line})",
            module.first_build_bytes >> 30
        );
    }
    let network =
        ["dial tcp", "no such host", "i/o timeout", "connection refused", "proxyconnect", "TLS handshake timeout"];
    if let Some(line) = find_line(&network) {
        return anyhow!(
            "cannot reach the Go module proxy to download the sources of {title}: check the network and `go env GOPROXY`, then run this again (output of Go: {line})"
        );
    }
    let last = output_lines.iter().rev().take(20).rev().cloned().collect::<Vec<_>>().join("\n");
    anyhow!("Go cannot build {title}; end of its output:\n{last}")
}

/// The folders that a build writes to: ours and Go's caches.
fn build_folders() -> Vec<PathBuf> {
    let output = Command::new("go").args(["env", "GOCACHE", "GOMODCACHE"]).output();
    let go: Vec<PathBuf> = output
        .map(|output| String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
        .unwrap_or_default();
    cache::folder().into_iter().chain(go).collect()
}

/// This is only a warning, because a build with warm caches needs much less.
fn warn_of_small_disk(module: &GoModule, target: &Path) {
    let existing = target.ancestors().find(|folder| folder.is_dir());
    let Some(Ok(disk)) = existing.map(rustix::fs::statvfs) else { return };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < module.first_build_bytes {
        eprintln!(
            "warning: only {:.1} GiB are free in {}; a first build of {} needs about {} GiB",
            free as f64 / f64::from(1 << 30),
            target.display(),
            module.title,
            module.first_build_bytes >> 30
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_build_failure_is_one_sentence() {
        let cases = [
            ("compile: writing output: write /x/_pkg_.a: no space left on device", "the disk is full"),
            (
                "go: k8s.io/api@v0.36.3: Get \"https://proxy.example/k8s.io/api/@v/v0.36.3.mod\": dial tcp: lookup proxy.example: no such host",
                "cannot reach the Go module proxy",
            ),
        ];
        for (line, expected) in cases {
            let message = explain(&CLUSTER, &["noise with words".to_owned(), line.to_owned()]).to_string();
            assert!(message.starts_with(expected), "{message}");
            assert!(message.contains("run this again") && !message.contains('\n'), "{message}");
        }
        let other = explain(&CLUSTER, &["./x.go:1: undefined: y".to_owned()]).to_string();
        assert!(other.contains("undefined: y"), "{other}");
    }
}
