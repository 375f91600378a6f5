//! The processes below one process, read from /proc, and their end.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long processes may take to stop when asked before they are killed.
const GRACE: Duration = Duration::from_secs(1);

/// Ends every descendant of `root`, those included that appear while this runs.
pub fn end_descendants(root: u32) {
    let asked_at = Instant::now();
    let mut asked = Vec::new();
    loop {
        let living = descendants(root);
        if living.is_empty() {
            return;
        }
        let signal = if asked_at.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        for id in living {
            // Asking twice makes some programs give up their orderly stop.
            if signal == Signal::KILL || !asked.contains(&id) {
                asked.push(id);
                if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(pid, signal);
                }
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ids of all living processes below `root`. An orphan counts as long as `root` is the one who adopts orphans.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    for id in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) = living_parent(id) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut found = Vec::new();
    let mut below = vec![root];
    while let Some(parent) = below.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            found.push(child);
            below.push(child);
        }
    }
    found
}

/// The parent of a process, or `None` if the process has ended. The ended ones that wait to be collected have ended.
fn living_parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The program's name stands in parentheses and may hold anything, parentheses too.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(parent)
}
