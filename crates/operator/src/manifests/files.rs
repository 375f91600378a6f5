//! Finds and reads the files that the paths of a command line name, in a fixed order.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A path of the command line that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{}: {cause}", path.display())]
    Path { path: PathBuf, cause: io::Error },
    #[error("{}: the folder has no .yaml, .yml or .json file{}", folder.display(), if *recursive { "" } else { "; -R includes its subfolders" })]
    Empty { folder: PathBuf, recursive: bool },
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("-f - is given twice; standard input can be read only once")]
    InputTwice,
}

pub(super) fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<(String, Vec<u8>)>, InputError> {
    if paths.iter().filter(|path| is_input(path)).count() > 1 {
        return Err(InputError::InputTwice);
    }
    let mut files = Vec::new();
    for path in paths {
        if is_input(path) {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map_err(InputError::Input)?;
            files.push(("standard input".to_owned(), bytes));
            continue;
        }
        for file in files_of(path, recursive)? {
            let bytes = fs::read(&file).map_err(|cause| InputError::Path { path: file.clone(), cause })?;
            files.push((file.display().to_string(), bytes));
        }
    }
    Ok(files)
}

fn is_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file is read whatever its name; for a folder, its YAML and JSON files are read.
fn files_of(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, InputError> {
    let failed = |cause| InputError::Path { path: path.to_owned(), cause };
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    list(path, recursive, &mut files).map_err(failed)?;
    if files.is_empty() {
        return Err(InputError::Empty { folder: path.to_owned(), recursive });
    }
    files.sort();
    Ok(files)
}

/// Links to folders are not followed: they may lead back.
fn list(folder: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if recursive {
                list(&path, recursive, files)?;
            }
        } else if path.extension().and_then(OsStr::to_str).is_some_and(|ending| EXTENSIONS.contains(&ending))
            && path.is_file()
        {
            files.push(path);
        }
    }
    Ok(())
}
