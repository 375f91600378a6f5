//! Reads Kubernetes objects from files, folders and standard input.

mod files;
mod text;

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

pub use files::InputError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentLocation {
    /// Path as the user named it, or below the folder that the user named.
    pub file: String,
    /// Number of the document, from 1.
    pub document: usize,
    /// Index in a `List`.
    pub item: Option<usize>,
}

impl fmt::Display for DocumentLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.file, self.document)?;
        self.item.map_or(Ok(()), |item| write!(f, ": items[{item}]"))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub location: DocumentLocation,
    /// Has `apiVersion` and `kind`.
    pub object: Value,
}

/// A document that is not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {problem}")]
pub struct DocumentError {
    pub location: DocumentLocation,
    pub problem: String,
}

/// All documents, in the order of the files. `-` is standard input; a folder means its YAML and JSON files.
pub fn read(paths: &[PathBuf], recursive: bool) -> Result<Vec<Result<Document, DocumentError>>, InputError> {
    let mut all = Vec::new();
    for (name, bytes) in files::read(paths, recursive)? {
        match String::from_utf8(bytes) {
            Ok(text) => all.extend(text::documents(&name, &text)),
            Err(_) => {
                let location = DocumentLocation { file: name, document: 1, item: None };
                all.push(Err(DocumentError { location, problem: "not UTF-8 text".to_owned() }));
            }
        }
    }
    Ok(all)
}
