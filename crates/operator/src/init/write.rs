//! One file, whole or not at all.
//! Comes in: its path, text and mode; goes out: the file, under its name only once all of it is there.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

/// A container that is started again finds what its first run has left, so both names may be taken.
pub fn whole(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let part = path.with_extension("part");
    written(&part, text, mode)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn written(part: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    match fs::remove_file(part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // No one else may read it before it has its mode, whatever the umask is.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(mode))
}
