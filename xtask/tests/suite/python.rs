//! The real Llama Stack on a machine that lacks what it needs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::xtask;

/// Runs the suite with an empty cache and nothing on the path but, if given, a `python3.12` that does what `script` says.
fn suite(script: Option<&str>, no_skip: &str) -> Output {
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
fn without_python_the_suite_is_skipped_and_listed() {
    // The second as a version manager answers for a version that was not chosen.
    for script in [None, Some("echo 'python3.12: command not found' >&2; exit 127")] {
        let output = suite(script, "");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("skipped: llamastack-real: no Python 3.12 was found; install it"), "{said}");
    }
}

#[test]
fn without_python_the_suite_fails_where_skipping_is_forbidden() {
    let output = suite(None, "1");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "llamastack-real would be skipped (no Python 3.12 was found; install it so that `python3.12` runs), and \
               STEERSMAN_NO_SKIP forbids that";
    assert!(said.contains(why), "{said}");
}

#[test]
fn a_failed_install_says_why_and_what_to_check() {
    let script = "case \"$*\" in
        *pip*) echo 'ERROR: Could not find a version that satisfies the requirement aiohttp'; exit 1;;
        *) printf '3.12\\n%s\\n' \"$0\";;
    esac";
    let output = suite(Some(script), "1");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("error: pip cannot install what llama-stack needs: ERROR: Could not find a version"),
        "{said}"
    );
    assert!(said.contains("reaches a package index"), "{said}");
}
