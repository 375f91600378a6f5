//! The cache folder outside the clone: built tools, and one folder per run. The owner of a run holds a lock on its folder.
//! A folder without a held lock belongs to a killed run, and the next start removes it.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

/// Environment variable that overrides the cache folder.
pub const CACHE_FOLDER_VARIABLE: &str = "STEERSMAN_CACHE";

/// The cache folder: `$STEERSMAN_CACHE`, else `$XDG_CACHE_HOME/steersman`, else `$HOME/.cache/steersman`.
pub fn folder() -> Result<PathBuf> {
    let path_from_variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = path_from_variable(CACHE_FOLDER_VARIABLE)
        .or_else(|| path_from_variable("XDG_CACHE_HOME").map(|home| home.join("steersman")))
        .or_else(|| path_from_variable("HOME").map(|home| home.join(".cache/steersman")))
        .with_context(|| {
            format!("no cache folder: set {CACHE_FOLDER_VARIABLE} to a folder for built tools and running clusters")
        })?;
    // Go and the tests run in other working directories, in which a relative path would have another meaning.
    std::path::absolute(&folder).with_context(|| format!("the cache folder {} has no absolute path", folder.display()))
}

/// The parent of the folders of all runs.
pub fn runs_folder() -> Result<PathBuf> {
    Ok(folder()?.join("runs"))
}

/// The folders that this process has created and not removed.
fn own_runs() -> MutexGuard<'static, Vec<PathBuf>> {
    static OWN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the folders of this process' runs. For a process that ends without dropping them.
pub fn remove_own_runs() {
    for path in own_runs().drain(..) {
        remove_run(&path);
    }
}

/// Best effort: the next run finds the lock free and removes the rest.
fn remove_run(path: &Path) {
    let _ = fs::remove_dir_all(path);
    let _ = fs::remove_file(lock_path(path));
}

fn lock_path(run: &Path) -> PathBuf {
    run.with_extension("lock")
}

/// Removes the folders of killed runs.
pub fn clear_stale_runs() -> Result<()> {
    let runs = runs_folder()?;
    if runs.is_dir() { remove_stale(&runs) } else { Ok(()) }
}

/// The folder of one run, removed when dropped. If the process is killed, the next run removes it.
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Creates a folder for this run below `runs`, after removing the folders of killed runs.
    pub fn create(runs: &Path) -> Result<Self> {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(runs).with_context(|| format!("cannot create the folder {}", runs.display()))?;
        remove_stale(runs)?;
        loop {
            let id = format!("{}-{}", std::process::id(), NEXT_NUMBER.fetch_add(1, Ordering::Relaxed));
            let path = runs.join(&id);
            let lock_path = lock_path(&path);
            let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
            // The clean-up of another run may have removed the file before we locked it. Try the next name.
            if lock.try_lock().is_err() || !is_same_file(&lock, &lock_path) || path.exists() {
                continue;
            }
            // The folder will contain private keys.
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            own_runs().push(path.clone());
            return Ok(Self { path, _lock: lock });
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        own_runs().retain(|path| *path != self.path);
        remove_run(&self.path);
    }
}

fn is_same_file(open: &File, path: &Path) -> bool {
    match (open.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

fn remove_stale(runs: &Path) -> Result<()> {
    for entry in fs::read_dir(runs).with_context(|| format!("cannot read {}", runs.display()))? {
        let lock_path = entry?.path();
        if lock_path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let Ok(lock) = File::open(&lock_path) else { continue };
        match lock.try_lock() {
            Ok(()) => {
                let _ = fs::remove_dir_all(lock_path.with_extension(""));
                let _ = fs::remove_file(&lock_path);
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", lock_path.display()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_folder_lives_as_long_as_owner() {
        let runs = tempfile::tempdir().unwrap();
        let first = RunFolder::create(runs.path()).unwrap();
        let second = RunFolder::create(runs.path()).unwrap();
        assert_ne!(first.path(), second.path());
        assert!(first.path().is_dir(), "the second start must not remove the folder of the first");
        let gone = first.path().to_owned();
        drop(first);
        assert!(!gone.exists());
        assert!(second.path().is_dir());
    }

    #[test]
    fn next_run_removes_killed_run() {
        let runs = tempfile::tempdir().unwrap();
        // A killed process leaves its folder and an unlocked lock file.
        fs::create_dir(runs.path().join("77-0")).unwrap();
        fs::write(runs.path().join("77-0/etcd.log"), "x").unwrap();
        fs::write(runs.path().join("77-0.lock"), "").unwrap();
        let mine = RunFolder::create(runs.path()).unwrap();
        assert!(!runs.path().join("77-0").exists());
        assert!(!runs.path().join("77-0.lock").exists());
        assert!(mine.path().is_dir());
    }
}
