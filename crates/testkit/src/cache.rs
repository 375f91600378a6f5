//! Where things live outside the clone: built tools, and one folder per run that its owner holds a lock on. A folder
//! whose lock is free belonged to a run that was killed, and is removed by the next start.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Overrides the cache folder.
pub const CACHE: &str = "STEERSMAN_CACHE";

/// The cache folder: `$STEERSMAN_CACHE`, else `$XDG_CACHE_HOME/steersman`, else `$HOME/.cache/steersman`.
pub fn folder() -> Result<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = of(CACHE)
        .or_else(|| of("XDG_CACHE_HOME").map(|home| home.join("steersman")))
        .or_else(|| of("HOME").map(|home| home.join(".cache/steersman")))
        .with_context(|| format!("no cache folder: set {CACHE} to a folder for built tools and running clusters"))?;
    // Go and the tests run in folders of their own, where a relative path would mean something else.
    std::path::absolute(&folder).with_context(|| format!("the cache folder {} has no absolute path", folder.display()))
}

/// Where the folders of runs lie.
pub fn runs() -> Result<PathBuf> {
    Ok(folder()?.join("runs"))
}

/// Removes what runs have left that were killed.
pub fn clear_stale_runs() -> Result<()> {
    let runs = runs()?;
    if runs.is_dir() { remove_stale(&runs) } else { Ok(()) }
}

/// A folder for one run, removed when dropped; if the process is killed instead, the next run removes it.
pub struct RunFolder {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
}

impl RunFolder {
    /// Makes a folder of its own for this run below `runs`, after clearing away those of runs that were killed.
    pub fn create(runs: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        fs::create_dir_all(runs).with_context(|| format!("cannot create the folder {}", runs.display()))?;
        remove_stale(runs)?;
        loop {
            let id = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let (path, lock_path) = (runs.join(&id), runs.join(format!("{id}.lock")));
            let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
            // Another run's clean-up may have taken the file between its creation and our lock: then try the next name.
            if lock.try_lock().is_err() || !is_same_file(&lock, &lock_path) || path.exists() {
                continue;
            }
            // It will hold keys.
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            return Ok(Self { path, lock_path, _lock: lock });
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Best effort: what stays is removed by the next run, which finds the lock free.
        let _ = fs::remove_dir_all(&self.path);
        let _ = fs::remove_file(&self.lock_path);
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
    fn a_run_folder_lives_as_long_as_its_owner() {
        let runs = tempfile::tempdir().unwrap();
        let first = RunFolder::create(runs.path()).unwrap();
        let second = RunFolder::create(runs.path()).unwrap();
        assert_ne!(first.path(), second.path());
        assert!(first.path().is_dir(), "the second start must not remove what the first still holds");
        let gone = first.path().to_owned();
        drop(first);
        assert!(!gone.exists());
        assert!(second.path().is_dir());
    }

    #[test]
    fn a_killed_run_is_cleared_by_the_next_one() {
        let runs = tempfile::tempdir().unwrap();
        // What a killed process leaves: the folder and a lock file that nobody holds.
        fs::create_dir(runs.path().join("77-0")).unwrap();
        fs::write(runs.path().join("77-0/etcd.log"), "x").unwrap();
        fs::write(runs.path().join("77-0.lock"), "").unwrap();
        let mine = RunFolder::create(runs.path()).unwrap();
        assert!(!runs.path().join("77-0").exists());
        assert!(!runs.path().join("77-0.lock").exists());
        assert!(mine.path().is_dir());
    }
}
