//! Writes a file by a rename, so that it is never incomplete.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

/// Writes the file, even if an earlier run of the container has left either name.
pub fn atomically(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let part = path.with_extension("part");
    write_part(&part, text, mode)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn write_part(part: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The file is private until it has its mode, whatever the umask is.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(mode))
}
