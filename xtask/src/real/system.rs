//! Finds or downloads what a real node needs from the operating system: `nft`, which kube-proxy runs, and the headers of libseccomp,
//! with which runc is built. On Debian and its descendants, missing packages are downloaded and unpacked into the cache
//! folder; nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use steersman_testkit::cache::{self, RunFolder};
use steersman_testkit::real_node::SystemTools;

use crate::command::{run_lines, show};
use crate::go_programs::lock;

/// Packages of Debian with the programs and headers.
const PACKAGES: [&str; 2] = ["nftables", "libseccomp-dev"];

/// Folders of system programs that are not on the path of every user.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The tools of the system, and where `pkg-config` finds libseccomp.
pub struct System {
    pub tools: SystemTools,
    /// `PKG_CONFIG_PATH`, unless libseccomp is installed.
    pub pkg_config: Option<PathBuf>,
}

/// Finds the tools. Missing packages are downloaded if this system has `apt-get`.
pub fn prepare() -> Result<System> {
    ensure!(
        on_path("pkg-config"),
        "`pkg-config` is not installed, but runc is built with it: install it (Debian, Ubuntu: `apt-get install pkg-config`) and run this again"
    );
    let (has_nft, has_headers) = (on_path("nft"), has_libseccomp());
    if has_nft && has_headers {
        return Ok(System { tools: SystemTools::default(), pkg_config: None });
    }
    if !on_path("apt-get") {
        let missing = [(has_nft, "nftables (the program `nft`)"), (has_headers, "the headers of libseccomp")];
        let missing: Vec<_> = missing.into_iter().filter(|(present, _)| !present).map(|(_, name)| name).collect();
        bail!("a real node needs {}: install them with the package manager and run this again", missing.join(" and "));
    }
    let root = unpacked()?;
    let libraries = root.join("usr/lib").join(multiarch()?);
    let tools = SystemTools { path: vec![root.join("usr/sbin")], libraries: vec![libraries.clone()] };
    Ok(System {
        tools: if has_nft { SystemTools::default() } else { tools },
        pkg_config: (!has_headers).then(|| libraries.join("pkgconfig")),
    })
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.into_iter().any(|folder| folder.join(program).is_file())
}

fn has_libseccomp() -> bool {
    let found = Command::new("pkg-config").args(["--exists", "libseccomp"]).status();
    found.is_ok_and(|status| status.success())
}

/// The folder with the unpacked packages.
fn unpacked() -> Result<PathBuf> {
    let parent = cache::folder()?.join("system");
    fs::create_dir_all(&parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let target = parent.join(system_name());
    let _lock = lock(&parent.join("download.lock"), "downloading packages of the system")?;
    if target.is_dir() {
        return Ok(target);
    }
    let run = RunFolder::create(&cache::runs_folder()?)?;
    let (archives, root) = (run.path().join("archives"), run.path().join("root"));
    for folder in [archives.join("partial"), root.clone()] {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    eprintln!("downloading {} into the cache (nothing is installed)", PACKAGES.join(", "));
    // The lists of packages are missing in new containers.
    download(&archives)
        .or_else(|_| execute(Command::new("apt-get").arg("update")).and_then(|()| download(&archives)))?;
    for package in debian_packages(&archives)? {
        execute(Command::new("dpkg").arg("-x").arg(&package).arg(&root))?;
    }
    adapt(&root, &target)?;
    fs::rename(&root, &target).with_context(|| format!("cannot move the packages to {}", target.display()))?;
    Ok(target)
}

/// Downloads the packages and those of their dependencies that are not installed.
fn download(archives: &Path) -> Result<()> {
    let mut command = Command::new("apt-get");
    command.args(["install", "--download-only", "--yes", "--no-install-recommends", "--reinstall"]);
    command.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display())).args(PACKAGES);
    // Otherwise apt-get warns that its own user cannot write to the folder.
    command.args(["-o", "APT::Sandbox::User=root"]);
    execute(&mut command)
}

fn debian_packages(archives: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(archives).with_context(|| format!("cannot read {}", archives.display()))?;
    let mut packages: Vec<_> = listed.flatten().map(|entry| entry.path()).collect();
    packages.retain(|path| path.extension().is_some_and(|extension| extension == "deb"));
    packages.sort();
    ensure!(!packages.is_empty(), "apt-get downloaded no package of {}", PACKAGES.join(", "));
    Ok(packages)
}

/// Makes the headers usable at `target`. runc links the static library, so that it does not need the package when it runs.
fn adapt(root: &Path, target: &Path) -> Result<()> {
    let libraries = Path::new("usr/lib").join(multiarch()?);
    let shared = root.join(&libraries).join("libseccomp.so");
    if shared.is_symlink() {
        fs::remove_file(&shared).with_context(|| format!("cannot remove {}", shared.display()))?;
    }
    let description = root.join(&libraries).join("pkgconfig/libseccomp.pc");
    let text = fs::read_to_string(&description).with_context(|| format!("cannot read {}", description.display()))?;
    let text = text.replace("prefix=/usr\n", &format!("prefix={}\n", target.join("usr").display()));
    fs::write(&description, text).with_context(|| format!("cannot write {}", description.display()))
}

/// The name of the folders of libraries, such as `x86_64-linux-gnu`.
fn multiarch() -> Result<String> {
    let output = Command::new("dpkg-architecture").args(["-qDEB_HOST_MULTIARCH"]).output();
    let printed = output.ok().filter(|output| output.status.success());
    let name = printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Ok(name.unwrap_or_else(|| format!("{}-linux-gnu", std::env::consts::ARCH)))
}

/// Names the release of the system: its packages fit only its own libraries.
fn system_name() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map_or_else(|| "unknown".to_owned(), |value| value.trim_matches('"').to_owned())
    };
    format!("{}-{}-{}", value("ID"), value("VERSION_ID"), std::env::consts::ARCH)
}

fn execute(command: &mut Command) -> Result<()> {
    let mut lines = Vec::new();
    let status = run_lines(command, |line| lines.extend(line.map(str::to_owned)))?;
    let error = lines.iter().rev().find(|line| line.starts_with("E:")).or(lines.last());
    ensure!(
        status.success(),
        "`{}` failed: {}; install {} and run this again",
        show(command),
        error.map_or("no output", |line| line.trim()),
        PACKAGES.join(" and ")
    );
    Ok(())
}
