//! A short run of every fuzz target, the same in every run. `cargo xtask fuzz` runs them longer, guided by coverage.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, thread};

use steersman_fuzz::{inputs, target};

/// An input that needs more time hangs.
const MAX_INPUT_TIME: Duration = Duration::from_secs(60);

#[test]
fn conversion_keeps_its_laws() {
    check_laws("conversion", 5_000);
}

#[test]
fn admission_reviews_keep_their_laws() {
    check_laws("admission_reviews", 5_000);
}

#[test]
fn tenant_yaml_keeps_its_laws() {
    check_laws("tenant_yaml", 1_000);
}

#[test]
fn image_references_keep_their_laws() {
    check_laws("image_references", 10_000);
}

#[test]
fn relay_files_keep_their_laws() {
    check_laws("relay_files", 5_000);
}

#[test]
fn prometheus_answers_keep_their_laws() {
    check_laws("prometheus_answers", 10_000);
}

#[test]
fn registry_answers_keep_their_laws() {
    check_laws("registry_answers", 10_000);
}

#[test]
fn pod_metrics_keep_their_laws() {
    check_laws("pod_metrics", 10_000);
}

/// Runs a target with its seeds and `changed` changed ones. The input of a failure stays in a file, also if it ends the process.
fn check_laws(name: &str, changed: u32) {
    let target = target(name).expect("the target exists");
    let inputs = inputs::inputs(target, changed).expect("the seeds can be read");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-failures");
    fs::create_dir_all(&folder).expect("the folder for failures can be created");
    let file = folder.join(name);
    let (sender, ended) = mpsc::channel();
    let worker = thread::spawn({
        let file = file.clone();
        move || {
            for input in inputs {
                fs::write(&file, &input).expect("the input can be written");
                (target.check)(&input);
                sender.send(()).expect("the test waits for every input");
            }
        }
    });
    let hangs = loop {
        match ended.recv_timeout(MAX_INPUT_TIME) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => break true,
            Err(RecvTimeoutError::Disconnected) => break false,
        }
    };
    let file = file.display();
    let advice = format!(
        "run it again with `cargo xtask fuzz {name} --input {file}`, and add it to fuzz/seeds/{name} with the fix"
    );
    assert!(!hangs, "{name}: the input in {file} takes more than {} s; {advice}", MAX_INPUT_TIME.as_secs());
    assert!(worker.join().is_ok(), "{name}: the input in {file} breaks a law; {advice}");
    fs::remove_file(folder.join(name)).expect("the file of the last input can be removed");
}
