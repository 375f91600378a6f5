//! Builds the command that checks our configurations with the real Llama Stack and prints one line per check.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value, json};
use steersman_plan::llamastack::config::base::{DISTRIBUTIONS, NEEDS};
use steersman_plan::llamastack::config::{PackageType, package_types, storage_exports};

use crate::python::{Packages, Python, server_versions};

/// The command checks every embedded base and every generated configuration among the fixtures, and that planted mistakes
/// are found.
pub fn command(python: &Python, packages: &Packages, work: &Path) -> Result<Command> {
    let scripts = crate::root().join("crates/plan/tests/llamastack-real");
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let manifest = work.join("manifest.json");
    let content = manifest_of(packages, work, &scripts)?;
    fs::write(&manifest, content).with_context(|| format!("cannot write {}", manifest.display()))?;

    let shared = packages.shared();
    // The user's environment is not passed on: a variable such as OPENAI_API_KEY would enable providers.
    let mut command = Command::new("env");
    command.arg("-i");
    for (name, value) in [
        ("PATH", std::env::var_os("PATH").unwrap_or_default()),
        ("HOME", home.into()),
        ("PYTHONPATH", shared.clone().into()),
        ("PYTHONDONTWRITEBYTECODE", "1".into()),
        // Llama Stack must not download models or tokenizers.
        ("HF_HUB_OFFLINE", "1".into()),
        ("TIKTOKEN_CACHE_DIR", shared.join("litellm/litellm_core_utils/tokenizers").into()),
    ] {
        let mut setting = std::ffi::OsString::from(name);
        setting.push("=");
        setting.push(value);
        command.arg(setting);
    }
    command.arg(python.program()).arg(scripts.join("suite.py")).arg(manifest);
    Ok(command)
}

fn manifest_of(packages: &Packages, work: &Path, scripts: &Path) -> Result<String> {
    let mut bases = Vec::new();
    for known in DISTRIBUTIONS {
        let config = work.join(format!("{}.yaml", known.name));
        fs::write(&config, known.text).with_context(|| format!("cannot write {}", config.display()))?;
        bases.push(json!({ "name": known.name, "config": config, "verified_with": known.verified_with }));
    }
    let servers: Map<_, _> =
        server_versions().into_iter().map(|version| (version.to_owned(), json!(packages.server(version)))).collect();
    let needs: Vec<_> =
        NEEDS.iter().map(|line| json!({ "api": line.api, "kind": line.kind, "needs": line.needs })).collect();
    let types: Map<_, _> = server_versions().into_iter().map(|version| (version.to_owned(), types(version))).collect();
    let fixtures = crate::root().join("crates/plan/tests/fixtures/llamastack/config");
    Ok(json!({
        "packages": servers,
        "bases": bases,
        "needs": needs,
        "types": types,
        "prepared": { "password": PASSWORD, "variables": prepared()? },
        "work": work.join("servers"),
        "trees": {
            "generated configurations": fixtures,
            "cases of the suite itself": scripts.join("cases"),
            "planted mistakes": scripts.join("planted"),
        },
    })
    .to_string())
}

fn types(version: &str) -> Value {
    let of_type = |known: PackageType| json!({ "api": known.api, "type": known.type_, "required": known.required, "written": known.written });
    package_types(version).into_iter().map(of_type).collect()
}

/// A password with characters that are special to a shell, a URL or the server, and a URL that contains it.
const PASSWORD: &str = "12'3 @:/%$é";
const CONNECTION_STRING: &str = "postgresql://stack:12'3%20%40%3A%2F%25%24%C3%A9@127.0.0.1:5432/postgres";

/// The variables that the init container sets, parsed from its script without a shell.
fn prepared() -> Result<Map<String, Value>> {
    let script = storage_exports(Some(CONNECTION_STRING), Some(PASSWORD)).map_err(|message| anyhow!(message))?;
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
        let value = value.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
        Some((name.to_owned(), Value::from(value)))
    };
    script
        .lines()
        .map(|text| line(text).context("the script of the init container has a line that is not `export NAME='VALUE'`"))
        .collect()
}
