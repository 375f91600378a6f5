//! Finds and reads the files that the paths of a command line name, in a fixed order.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// A path of the command line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NotThere {
    #[error("{}: {cause}", path.display())]
    Path { path: PathBuf, cause: io::Error },
    #[error("{}: no file in it ends in .yaml, .yml or .json{}", folder.display(), if *recursive { "" } else { "; -R looks into its folders too" })]
    Empty { folder: PathBuf, recursive: bool },
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("-f - is there twice; standard input can be read once")]
    InputTwice,
}

pub(super) fn read(given: &[PathBuf], recursive: bool) -> Result<Vec<(String, Vec<u8>)>, NotThere> {
    if given.iter().filter(|path| is_input(path)).count() > 1 {
        return Err(NotThere::InputTwice);
    }
    let mut files = Vec::new();
    for path in given {
        if is_input(path) {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map_err(NotThere::Input)?;
            files.push(("standard input".to_owned(), bytes));
            continue;
        }
        for file in below(path, recursive)? {
            let bytes = fs::read(&file).map_err(|cause| NotThere::Path { path: file.clone(), cause })?;
            files.push((file.display().to_string(), bytes));
        }
    }
    Ok(files)
}

fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file is read whatever its name; of a folder, the YAML and JSON files are.
fn below(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, NotThere> {
    let failed = |cause| NotThere::Path { path: path.to_owned(), cause };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    list(path, recursive, &mut found).map_err(failed)?;
    if found.is_empty() {
        return Err(NotThere::Empty { folder: path.to_owned(), recursive });
    }
    found.sort();
    Ok(found)
}

/// Links to folders are not followed: they may lead back.
fn list(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if recursive {
                list(&path, recursive, found)?;
            }
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|ending| ENDINGS.contains(&ending))
            && path.is_file()
        {
            found.push(path);
        }
    }
    Ok(())
}
