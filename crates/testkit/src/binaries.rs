//! The programs of the local cluster and the folder into which they are built. The name of the folder is a hash of all
//! inputs of the build, so that a changed module is rebuilt and clones at different commits do not interfere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::cache;

const GO_MOD: &str = include_str!("../../../cluster/go.mod");
const GO_SUM: &str = include_str!("../../../cluster/go.sum");

/// Build tags. They exclude Prometheus' cloud discovery, which takes most of its build time.
const BUILD_TAGS: &str = "netgo,remove_all_sd,enable_kubernetes_sd";

/// The programs: the name by which the Go module's `tool` line builds each, and the name that we give it.
pub const PROGRAMS: [(&str, &str); 7] = [
    ("server", "etcd"),
    ("kube-apiserver", "kube-apiserver"),
    ("kube-controller-manager", "kube-controller-manager"),
    ("kube-scheduler", "kube-scheduler"),
    ("kubectl", "kubectl"),
    ("kwok", "kwok"),
    ("prometheus", "prometheus"),
];

/// The built programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// The built programs, or `None` if they are not built. The folder is created by a rename, so it is complete.
    pub fn find() -> Result<Option<Self>> {
        let folder = folder()?;
        Ok(folder.is_dir().then_some(Self { folder }))
    }

    pub fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }
}

/// The folder for the programs of this version of the module.
pub fn folder() -> Result<PathBuf> {
    Ok(cache::folder()?.join("cluster").join(build_hash()))
}

fn build_hash() -> String {
    let mut hash = Sha256::new();
    let target = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
    for part in [GO_MOD, GO_SUM, &build_arguments(Path::new("")).join(" "), &target] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Arguments of `go` that build all programs into `into`. `go` must run in the folder of the module.
pub fn build_arguments(into: &Path) -> Vec<String> {
    let version = module_version("k8s.io/kubernetes").unwrap_or_default();
    [
        "build",
        "-v",
        "-trimpath",
        "-buildvcs=false",
        // Debug data is not needed, and omitting it makes the first build faster.
        "-gcflags=all=-dwarf=false",
        "-tags",
        BUILD_TAGS,
        "-ldflags",
        &format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"),
        "-o",
        &format!("{}/", into.display()),
        "tool",
    ]
    .map(String::from)
    .to_vec()
}

/// Arguments of `go` that list every package of the build.
pub fn list_arguments() -> Vec<String> {
    ["list", "-deps", "-tags", BUILD_TAGS, "tool"].map(String::from).to_vec()
}

/// The oldest Go version that can build the module, from its `go` line.
pub fn required_go() -> Result<(u32, u32)> {
    let line = GO_MOD.lines().find_map(|line| line.strip_prefix("go ")).context("cluster/go.mod has no `go` line")?;
    go_version(line).with_context(|| format!("cluster/go.mod: cannot read the Go version {line:?}"))
}

/// Major and minor version of a Go version such as `go1.26.8` or `1.26.0`.
pub fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().trim_start_matches("go").split('.');
    let major = parts.next()?.parse().ok()?;
    // Release candidates contain letters, such as 1.27rc1.
    let minor = parts.next()?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

/// The version that the module pins for one of its direct requirements.
pub fn module_version(module: &str) -> Option<&'static str> {
    GO_MOD.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten().filter(|word| word.starts_with('v'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_version_parses_go_output() {
        for (text, expected) in [
            ("go1.26.8", Some((1, 26))),
            ("1.26.0", Some((1, 26))),
            ("go1.27rc1", Some((1, 27))),
            ("go1.9\n", Some((1, 9))),
            ("devel go1.28-abc", None),
            ("", None),
        ] {
            assert_eq!(go_version(text), expected, "{text:?}");
        }
        assert!((1, 26) <= required_go().unwrap());
    }

    #[test]
    fn programs_match_tool_lines() {
        let tools: Vec<_> = GO_MOD
            .lines()
            .skip_while(|line| *line != "tool (")
            .skip(1)
            .take_while(|line| *line != ")")
            .map(|line| line.trim().trim_end_matches("/v3").rsplit('/').next().unwrap())
            .collect();
        let mut built: Vec<_> = PROGRAMS.iter().map(|(built, _)| *built).collect();
        built.sort_unstable();
        let mut named = tools.clone();
        named.sort_unstable();
        assert_eq!(named, built);
    }

    #[test]
    fn staging_modules_match_kubernetes_version() {
        let version = module_version("k8s.io/kubernetes").unwrap();
        let staging = version.replacen("v1.", "v0.", 1);
        let replaced: Vec<_> = GO_MOD.lines().filter(|line| line.contains("=>")).collect();
        assert!(replaced.len() > 25, "the staging modules of Kubernetes are replaced one by one");
        for line in replaced {
            assert!(
                line.ends_with(&staging),
                "{line} must name {staging}, the staging version of Kubernetes {version}"
            );
        }
    }
}
