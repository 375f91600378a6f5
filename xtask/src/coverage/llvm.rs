//! Finds `llvm-profdata` and `llvm-cov` of the LLVM version that the compiler uses: another version cannot read its profiles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use steersman_testkit::cache::{self, RunFolder};

use crate::command::run;

const PROGRAMS: [&str; 2] = ["llvm-profdata", "llvm-cov"];

pub struct LlvmTools {
    programs: PathBuf,
    /// Suffix of the program names, as in `llvm-cov-22`.
    suffix: String,
    /// Folder of the shared library, if it is not installed in the system.
    library: Option<PathBuf>,
}

impl LlvmTools {
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(format!("{program}{}", self.suffix)));
        if let Some(library) = &self.library {
            command.env("LD_LIBRARY_PATH", library);
        }
        command
    }

    fn fits(&self, version: &str) -> bool {
        let wanted = format!("LLVM version {version}.");
        PROGRAMS.iter().all(|program| {
            let output = self.command(program).arg("--version").output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&wanted))
        })
    }
}

/// The tools of the toolchain (component `llvm-tools`), of the system, or of Debian's packages, which are unpacked into the
/// cache.
pub fn find() -> Result<LlvmTools> {
    let about = rustc(&["--version", "--verbose"])?;
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let host = field("host:").context("rustc does not name its host")?;
    let version = field("LLVM version:").and_then(|version| version.split('.').next());
    let version = version.context("rustc does not name its version of LLVM")?;
    let sysroot = rustc(&["--print", "sysroot"])?;
    let toolchain = Path::new(sysroot.trim()).join("lib/rustlib").join(host).join("bin");
    let system = PathBuf::new();
    let cached = cache::folder()?.join(format!("tools/llvm-{version}"));
    let installed = [
        LlvmTools { programs: toolchain, suffix: String::new(), library: None },
        LlvmTools { programs: system.clone(), suffix: format!("-{version}"), library: None },
        LlvmTools { programs: system, suffix: String::new(), library: None },
        unpacked(&cached, version),
    ];
    if let Some(tools) = installed.into_iter().find(|tools| tools.fits(version)) {
        return Ok(tools);
    }
    let advice =
        format!("install them with `rustup component add llvm-tools`, or the package llvm-{version} of the system");
    unpack(&cached, version).with_context(|| format!("the tools of LLVM {version} are missing; {advice}"))?;
    let tools = unpacked(&cached, version);
    if !tools.fits(version) {
        bail!("the tools of LLVM {version} in {} do not run; {advice}", cached.display());
    }
    Ok(tools)
}

fn rustc(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("rustc").current_dir(crate::root()).args(arguments).output().context("cannot run rustc")?;
    Ok(String::from_utf8(output.stdout)?)
}

/// The tools in the layout of Debian's packages.
fn unpacked(folder: &Path, version: &str) -> LlvmTools {
    LlvmTools {
        programs: folder.join(format!("usr/lib/llvm-{version}/bin")),
        suffix: String::new(),
        library: Some(folder.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))),
    }
}

/// Downloads Debian's packages and unpacks them, which needs no root.
fn unpack(target: &Path, version: &str) -> Result<()> {
    let folder = RunFolder::create(&cache::runs_folder()?)?;
    let (downloads, content) = (folder.path().join("packages"), folder.path().join("content"));
    fs::create_dir_all(&downloads)?;
    eprintln!("downloading the tools of LLVM {version} (once)");
    let mut download = Command::new("apt-get");
    download.args(["download", &format!("llvm-{version}"), &format!("libllvm{version}")]).current_dir(&downloads);
    run(&download)?;
    for entry in fs::read_dir(&downloads)? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("--extract").arg(entry?.path()).arg(&content);
        run(&unpack)?;
    }
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::rename(&content, target).with_context(|| format!("cannot move the tools to {}", target.display()))
}
