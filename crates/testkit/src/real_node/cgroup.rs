//! The control group of a real node's pods, in every hierarchy of this machine. It is removed with its descendants when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

/// Mount point of the control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// First part of the name of every group that this module creates, followed by the id of the process that uses it.
const NAME_PREFIX: &str = "steersman-";

/// Files of a group of `cpuset` that must have a value before a process can join the group.
const CPUSET_FILES: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

/// The kernel needs a moment to release a group whose last process was killed.
const REMOVE_ATTEMPTS: u32 = 100;
const REMOVE_INTERVAL: Duration = Duration::from_millis(50);

pub struct Cgroup {
    name: String,
}

impl Cgroup {
    /// Memory that the pods use, in bytes.
    pub fn memory(&self) -> Option<u64> {
        let files = ["memory.current", "memory.usage_in_bytes"];
        let folders = hierarchies().ok()?;
        let mut paths = folders.iter().flat_map(|folder| files.map(|file| folder.join(&self.name).join(file)));
        paths.find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
    }
}

/// Why control groups cannot be created, if they cannot.
pub fn missing_requirement() -> Option<String> {
    let probe = hierarchies().and_then(|found| {
        let folder =
            found.first().context("it has no hierarchy")?.join(format!("{NAME_PREFIX}probe-{}", std::process::id()));
        fs::create_dir(&folder).and_then(|()| fs::remove_dir(&folder)).context("it cannot be changed")
    });
    probe.err().map(|error| format!("it needs control groups, and {ROOT} is not usable: {error:#}"))
}

impl Cgroup {
    pub fn create() -> Result<Self> {
        remove_abandoned()?;
        let group = Self { name: name() };
        enable_controllers();
        for hierarchy in hierarchies()? {
            let folder = hierarchy.join(&group.name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
            for file in CPUSET_FILES.into_iter().filter(|file| folder.join(file).exists()) {
                let inherited = fs::read(hierarchy.join(file)).unwrap_or_default();
                // In the unified hierarchy an empty value means all, and the root has no such file.
                if !inherited.is_empty() {
                    fs::write(folder.join(file), inherited)
                        .with_context(|| format!("cannot write {}", folder.join(file).display()))?;
                }
            }
        }
        Ok(group)
    }
}

/// The name of this process' group, as an absolute path below the root.
pub fn path() -> String {
    format!("/{}", name())
}

fn name() -> String {
    format!("{NAME_PREFIX}{}", std::process::id())
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // An error is ignored: the next start removes what is left.
        let _ = remove(&self.name);
    }
}

/// The folders in which groups are created: one with the unified hierarchy, one per controller with the older ones.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").is_file() {
        return Ok(vec![root.to_owned()]);
    }
    let listed = fs::read_dir(root).with_context(|| format!("cannot read {ROOT}"))?;
    // Some names are links to a hierarchy with several controllers.
    let mut found: Vec<_> = listed.flatten().filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    found.retain(|folder| folder.join("cgroup.procs").is_file());
    found.sort();
    found.dedup();
    ensure!(!found.is_empty(), "{ROOT} has no control groups");
    Ok(found)
}

/// In the unified hierarchy, a group has the controllers that its parent passes on. The kubelet names those that it misses, so an
/// error is ignored here.
fn enable_controllers() {
    let root = Path::new(ROOT);
    let available = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace() {
        let _ = fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Removes the group of this process, which must have no process any more. For a process that ends without dropping its
/// [`Cgroup`].
pub fn remove_own() -> Result<()> {
    remove(&name())
}

/// Removes the groups of processes that have ended without removing them.
pub fn remove_abandoned() -> Result<()> {
    let mut names = Vec::new();
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(NAME_PREFIX).and_then(|id| id.parse().ok());
            if owner.is_some_and(|id| !crate::process::is_running(id)) {
                names.push(name);
            }
        }
    }
    names.sort();
    names.dedup();
    // A group that cannot be removed does not prevent the start of a node.
    names.iter().for_each(|name| drop(remove(name)));
    Ok(())
}

fn remove(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(name);
        let mut result = Ok(());
        for _ in 0..REMOVE_ATTEMPTS {
            result = remove_tree(&folder);
            if result.is_ok() {
                break;
            }
            std::thread::sleep(REMOVE_INTERVAL);
        }
        result?;
    }
    Ok(())
}

/// Removes a group after its descendants. Its files cannot be removed, and need not be.
fn remove_tree(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path())?;
    }
    fs::remove_dir(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
