//! The programs that are built from pinned Go modules, and the folders into which they are built. The name of a folder is a
//! hash of all inputs of the build, so that a changed module is rebuilt and clones at different commits do not interfere.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cache;

/// A Go module of this repository that pins programs, and how they are built.
pub struct GoModule {
    /// The purpose of the programs, as messages name it.
    pub title: &'static str,
    /// Folder of the module, below the root of the repository.
    pub folder: &'static str,
    /// The programs: the name by which Go builds each, and the name that we give it.
    pub programs: &'static [(&'static str, &'static str)],
    /// Whether the programs need a C compiler.
    pub cgo: bool,
    /// Size of Go's two caches and the programs after a first build.
    pub first_build_bytes: u64,
    /// Name of the folder in the cache.
    cache_folder: &'static str,
    /// Texts of `go.mod`, `go.sum` and of Go code in the folder: a change of any of them causes a new build.
    go_mod: &'static str,
    go_sum: &'static str,
    sources: &'static [&'static str],
    /// Packages to build. `tool` stands for all of the module's `tool` lines.
    packages: &'static [&'static str],
    build_tags: &'static str,
}

/// The control plane of the local cluster, the simulation of its nodes, and Prometheus.
pub static CLUSTER: GoModule = GoModule {
    title: "the local cluster",
    folder: "cluster",
    programs: &[
        ("server", "etcd"),
        ("kube-apiserver", "kube-apiserver"),
        ("kube-controller-manager", "kube-controller-manager"),
        ("kube-scheduler", "kube-scheduler"),
        ("kubectl", "kubectl"),
        ("kwok", "kwok"),
        ("prometheus", "prometheus"),
    ],
    cgo: false,
    first_build_bytes: 6 << 30,
    cache_folder: "cluster",
    go_mod: include_str!("../../../cluster/go.mod"),
    go_sum: include_str!("../../../cluster/go.sum"),
    sources: &[],
    packages: &["tool"],
    // They exclude Prometheus' cloud discovery, which takes most of its build time.
    build_tags: "netgo,remove_all_sd,enable_kubernetes_sd",
};

/// A container registry, for tests that push images.
pub static REGISTRY: GoModule = GoModule {
    title: "the container registry for tests",
    folder: "cluster/registry",
    programs: &[("registry", "registry")],
    cgo: false,
    first_build_bytes: 1 << 30,
    cache_folder: "registry",
    go_mod: include_str!("../../../cluster/registry/go.mod"),
    go_sum: include_str!("../../../cluster/registry/go.sum"),
    sources: &[include_str!("../../../cluster/registry/main.go")],
    packages: &["."],
    build_tags: "",
};

/// The program with which users install the chart.
pub static HELM: GoModule = GoModule {
    title: "helm",
    folder: "cluster/helm",
    programs: &[("helm", "helm")],
    cgo: false,
    first_build_bytes: 2 << 30,
    cache_folder: "helm",
    go_mod: include_str!("../../../cluster/helm/go.mod"),
    go_sum: include_str!("../../../cluster/helm/go.sum"),
    sources: &[],
    packages: &["tool"],
    build_tags: "",
};

/// The Kubernetes programs of a real node, its DNS server and the process that holds the namespaces of a pod.
pub static NODE: GoModule = GoModule {
    title: "the Kubernetes programs of a real node",
    folder: "cluster/node",
    programs: &[
        ("bridge", "bridge"),
        ("coredns", "coredns"),
        ("host-local", "host-local"),
        ("kube-proxy", "kube-proxy"),
        ("kubelet", "kubelet"),
        ("loopback", "loopback"),
        ("pause", "pause"),
    ],
    // The programs in images have no C library.
    cgo: false,
    first_build_bytes: 4 << 30,
    cache_folder: "node",
    go_mod: include_str!("../../../cluster/node/go.mod"),
    go_sum: include_str!("../../../cluster/node/go.sum"),
    sources: &[
        include_str!("../../../cluster/node/coredns/main.go"),
        include_str!("../../../cluster/node/pause/main.go"),
    ],
    packages: &["tool", "./coredns", "./pause"],
    build_tags: "netgo",
};

/// The container runtime of a real node. A module of its own, because containerd needs newer libraries of Kubernetes than the
/// kubelet.
pub static CONTAINERS: GoModule = GoModule {
    title: "the container runtime of a real node",
    folder: "cluster/containers",
    programs: &[
        ("containerd", "containerd"),
        ("containerd-shim-runc-v2", "containerd-shim-runc-v2"),
        ("ctr", "ctr"),
        ("runc", "runc"),
    ],
    // runc enters namespaces in C code.
    cgo: true,
    first_build_bytes: 3 << 30,
    cache_folder: "containers",
    go_mod: include_str!("../../../cluster/containers/go.mod"),
    go_sum: include_str!("../../../cluster/containers/go.sum"),
    sources: &[],
    packages: &["tool"],
    // Without seccomp, runc rejects pods with the profile RuntimeDefault. The others exclude parts of containerd that are not used.
    build_tags: "seccomp,netgo,osusergo,no_btrfs,no_devmapper,no_zfs,no_tracing",
};

/// All modules, for tests that hold for each.
#[cfg(test)]
static MODULES: [&GoModule; 5] = [&CLUSTER, &REGISTRY, &HELM, &NODE, &CONTAINERS];

/// The built programs of a module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// The programs of the local cluster, or `None` if they are not built.
    pub fn find() -> Result<Option<Self>> {
        CLUSTER.find()
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, program: &str) -> PathBuf {
        self.folder.join(program)
    }
}

impl GoModule {
    /// The built programs, or `None` if they are not built. The folder is created by a rename, so it is complete.
    pub fn find(&self) -> Result<Option<Binaries>> {
        let folder = self.target_folder()?;
        Ok(folder.is_dir().then_some(Binaries { folder }))
    }

    /// The folder for the programs of this version of the module.
    pub fn target_folder(&self) -> Result<PathBuf> {
        Ok(cache::folder()?.join(self.cache_folder).join(self.build_hash()))
    }

    fn build_hash(&self) -> String {
        let mut hash = Sha256::new();
        let target = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let arguments = self.build_arguments(Path::new("")).join(" ");
        let inputs = [self.go_mod, self.go_sum, &arguments, &target];
        for part in inputs.iter().chain(self.sources) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Arguments of `go` that build all programs into `into`. `go` must run in the folder of the module.
    pub fn build_arguments(&self, into: &Path) -> Vec<String> {
        let version = self.pinned_version("k8s.io/kubernetes").unwrap_or_default();
        let options = [
            "build",
            "-v",
            "-trimpath",
            "-buildvcs=false",
            // Debug data is not needed, and omitting it makes the first build faster.
            "-gcflags=all=-dwarf=false",
            "-tags",
            self.build_tags,
            "-ldflags",
            &format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"),
            "-o",
            &format!("{}/", into.display()),
        ]
        .map(String::from);
        options.into_iter().chain(self.packages.iter().map(|name| (*name).to_owned())).collect()
    }

    /// Arguments of `go` that list every package of the build.
    pub fn list_arguments(&self) -> Vec<String> {
        let options = ["list", "-deps", "-tags", self.build_tags];
        options.iter().chain(self.packages).map(|word| (*word).to_owned()).collect()
    }

    /// The oldest Go version that can build the module, from its `go` line.
    pub fn required_go(&self) -> Result<(u32, u32)> {
        let file = format!("{}/go.mod", self.folder);
        let mut lines = self.go_mod.lines();
        let line =
            lines.find_map(|line| line.strip_prefix("go ")).with_context(|| format!("{file} has no `go` line"))?;
        go_version(line).with_context(|| format!("{file}: cannot read the Go version {line:?}"))
    }

    /// The version that the module pins for one of its direct requirements.
    pub fn pinned_version(&self, module: &str) -> Option<&'static str> {
        self.go_mod.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            (words.next() == Some(module)).then(|| words.next()).flatten().filter(|word| word.starts_with('v'))
        })
    }
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
        for module in MODULES {
            assert!((1, 26) <= module.required_go().unwrap(), "{}", module.folder);
        }
    }

    #[test]
    fn programs_match_tool_lines() {
        for module in MODULES.into_iter().filter(|module| module.packages.contains(&"tool")) {
            let own = module.packages.iter().filter_map(|package| package.strip_prefix("./"));
            let single =
                module.go_mod.lines().filter_map(|line| line.strip_prefix("tool ")).filter(|line| *line != "(");
            let block = module.go_mod.lines().skip_while(|line| *line != "tool (").skip(1);
            let mut tools: Vec<_> = single
                .chain(block.take_while(|line| *line != ")"))
                .map(|line| line.trim().trim_end_matches("/v3").rsplit('/').next().unwrap())
                .chain(own)
                .collect();
            tools.sort_unstable();
            let mut built: Vec<_> = module.programs.iter().map(|(built, _)| *built).collect();
            built.sort_unstable();
            assert_eq!(tools, built, "{}", module.folder);
        }
    }

    #[test]
    fn staging_modules_match_kubernetes_version() {
        for module in MODULES {
            let Some(version) = module.pinned_version("k8s.io/kubernetes") else { continue };
            let staging = version.replacen("v1.", "v0.", 1);
            let replaced: Vec<_> = module.go_mod.lines().filter(|line| line.contains("=>")).collect();
            assert!(replaced.len() > 25, "the staging modules of Kubernetes are replaced one by one");
            for line in replaced {
                assert!(
                    line.ends_with(&staging),
                    "{line} must name {staging}, the staging version of Kubernetes {version}"
                );
            }
        }
        assert!(CLUSTER.pinned_version("k8s.io/kubernetes").is_some());
    }
}
