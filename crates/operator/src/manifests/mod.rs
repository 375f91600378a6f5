//! Manifests as people keep them.
//! Comes in: files, folders or standard input, as named on the command line; goes out: the objects in them, each with its
//! place, or why a document cannot be read.

mod files;
mod text;

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

pub use files::NotThere;

/// Where an object stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// As the user named it, or as it was found below the folder that was named.
    pub file: String,
    /// The first one of a file is 1.
    pub document: usize,
    /// Inside a `List`.
    pub item: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, ": items[{item}]"))
    }
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub place: Place,
    /// With `apiVersion` and `kind`.
    pub object: Value,
}

/// A document that is no object, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Unreadable {
    pub place: Place,
    pub problem: String,
}

/// All documents in the order of the files and in them. `-` is standard input; a folder stands for its YAML and JSON files.
pub fn read(given: &[PathBuf], recursive: bool) -> Result<Vec<Result<Document, Unreadable>>, NotThere> {
    let mut all = Vec::new();
    for (name, bytes) in files::read(given, recursive)? {
        match String::from_utf8(bytes) {
            Ok(text) => all.extend(text::documents(&name, &text)),
            Err(_) => {
                let place = Place { file: name, document: 1, item: None };
                all.push(Err(Unreadable { place, problem: "not a text in UTF-8".to_owned() }));
            }
        }
    }
    Ok(all)
}
