//! The suite with the real Llama Stack on a machine without Python or its packages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::xtask;

/// Runs the suite with an empty cache and an empty PATH, except for a `python3.12` that runs `script`.
fn run_suite(script: Option<&str>, no_skip: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bin");
    fs::create_dir(&path).unwrap();
    if let Some(script) = script {
        let python = path.join("python3.12");
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = xtask();
    command
        .args(["test", "--suite", "llamastack-real"])
        .env("PATH", &path)
        .env("HOME", folder.path())
        .env("STEERSMAN_CACHE", folder.path().join("cache"))
        .env("STEERSMAN_NO_SKIP", no_skip)
        .env_remove("PYENV_ROOT");
    command.output().unwrap()
}

#[test]
fn missing_python_skips_and_lists_suite() {
    // The second case is a shim of pyenv for a version that is not selected.
    for script in [None, Some("echo 'python3.12: command not found' >&2; exit 127")] {
        let output = run_suite(script, "");
        let output_text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{output_text}");
        assert!(
            output_text.contains("skipped: llamastack-real: Python 3.12 was not found; install it"),
            "{output_text}"
        );
    }
}

#[test]
fn missing_python_fails_if_skipping_is_forbidden() {
    let output = run_suite(None, "1");
    let output_text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    let expected = "llamastack-real would be skipped (Python 3.12 was not found; install it as `python3.12`), but \
               STEERSMAN_NO_SKIP forbids it";
    assert!(output_text.contains(expected), "{output_text}");
}

#[test]
fn failed_install_reports_cause_and_remedy() {
    let script = "case \"$*\" in
        *pip*) echo 'ERROR: Could not find a version that satisfies the requirement aiohttp'; exit 1;;
        *) printf '3.12\\n%s\\n' \"$0\";;
    esac";
    let output = run_suite(Some(script), "1");
    let output_text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output_text}");
    assert!(
        output_text.contains("error: pip cannot install the packages of llama-stack: ERROR: Could not find a version"),
        "{output_text}"
    );
    assert!(output_text.contains("reaches a package index"), "{output_text}");
}
