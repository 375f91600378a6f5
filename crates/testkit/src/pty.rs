//! A pseudo terminal, for tests of programs that behave differently on a terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// The terminal. Everything that is written to it is kept.
pub struct PseudoTerminal {
    controller: File,
    path: PathBuf,
    output: Arc<Mutex<Vec<u8>>>,
    /// Keeps the terminal open between two programs.
    _held_open: File,
}

impl PseudoTerminal {
    pub fn open(width: u16, height: u16) -> Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let path = PathBuf::from(ptsname(&controller, Vec::new())?.into_string()?);
        let terminal =
            Self { _held_open: open(&path)?, controller: File::from(controller), path, output: Arc::default() };
        terminal.resize(width, height)?;
        let (mut reader, output) = (terminal.controller.try_clone()?, terminal.output.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The read fails once the terminal is closed everywhere.
            while let Ok(read) = reader.read(&mut bytes) {
                output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..read]);
            }
        });
        Ok(terminal)
    }

    /// Connects the standard streams of a command with the terminal.
    pub fn attach<'a>(&self, command: &'a mut Command) -> Result<&'a mut Command> {
        let stream = || -> Result<Stdio> { Ok(open(&self.path)?.into()) };
        Ok(command.stdin(stream()?).stdout(stream()?).stderr(stream()?).env("TERM", "xterm-256color"))
    }

    pub fn resize(&self, width: u16, height: u16) -> Result<()> {
        let size = Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.controller, size).context("cannot resize the terminal")
    }

    /// Types keys. Control characters have their meaning: `\x03` is Ctrl-C.
    pub fn press(&self, keys: &str) -> Result<()> {
        (&self.controller).write_all(keys.as_bytes()).context("cannot write to the terminal")
    }

    /// All output so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Whether typed keys are echoed and edited by lines, as a shell leaves a terminal.
    pub fn echoes_lines(&self) -> Result<bool> {
        let settings = tcgetattr(&self.controller).context("cannot read the settings of the terminal")?;
        Ok(settings.local_modes.contains(LocalModes::ECHO | LocalModes::ICANON))
    }
}

/// Opens the terminal without making it that of the test's own session.
fn open(path: &Path) -> Result<File> {
    let flags = i32::try_from(OFlags::NOCTTY.bits())?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.with_context(|| format!("cannot open {}", path.display()))
}
