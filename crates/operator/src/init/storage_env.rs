//! Runs `steersman storage-env`, which splits the addresses of databases into the variables that the server reads.
//!
//! No message quotes a value: it comes from a Secret.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args;
use steersman_plan::llamastack::config::{KV_PASSWORD, SQL_CONNECTION_STRING, storage_exports};

use crate::init::write;

/// Mode of the script, for the server's user, which shares a group with ours.
const MODE: u32 = 0o640;

#[derive(Clone, Debug, Args)]
pub struct StorageEnvArgs {
    /// Script to write, with lines of the form `export NAME='value'`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

pub fn storage_env(args: &StorageEnvArgs) -> anyhow::Result<()> {
    let connection_string = variable(SQL_CONNECTION_STRING)?;
    let password = variable(KV_PASSWORD)?;
    if connection_string.is_none() && password.is_none() {
        bail!("neither {SQL_CONNECTION_STRING} nor {KV_PASSWORD} is set; set one of them from a Secret");
    }
    let script = storage_exports(connection_string.as_deref(), password.as_deref())
        .map_err(|message| anyhow!("{SQL_CONNECTION_STRING}: {message}; correct the value in the Secret"))?;
    write::atomically(&args.out, &script, MODE)
}

fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) if value.trim().is_empty() => {
            bail!("environment variable {name} is empty; set a value in the Secret that it comes from")
        }
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            bail!("environment variable {name} is not UTF-8 text; correct the value in the Secret that it comes from")
        }
    }
}
