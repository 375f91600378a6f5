//! Finds the descendants of a process in /proc, and ends them.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// Time for a graceful stop before processes are killed.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Ends every descendant of `root`, including those that appear while this runs.
pub fn end_descendants(root: u32) {
    let start = Instant::now();
    let mut signalled = Vec::new();
    loop {
        if root == std::process::id() {
            reap_children();
        }
        let living = descendants(root);
        if living.is_empty() {
            return;
        }
        let signal = if start.elapsed() < GRACE_PERIOD { Signal::TERM } else { Signal::KILL };
        for id in living {
            // A second SIGTERM makes some programs abort their graceful stop.
            if signal == Signal::KILL || !signalled.contains(&id) {
                signalled.push(id);
                if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Collects the children of this process that have ended. The first process of a process namespace does not end before all others
/// of the namespace are collected, and this process may have adopted them.
fn reap_children() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Ids of all living descendants of `root`. Orphans are included if `root` is the subreaper that adopts them.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    for id in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) = living_parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut pending = vec![root];
    while let Some(parent) = pending.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            pending.push(child);
        }
    }
    found
}

/// The parent of a process, or `None` if the process has ended or is a zombie.
fn living_parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program is in parentheses and may itself contain parentheses.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}
