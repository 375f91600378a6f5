//! The commands that need no cluster: `steersman convert`, `validate` and `render`.

mod args;
mod check;
mod convert;
mod print;
mod render;
mod schema;
mod validate;

use serde_json::Value;
use steersman_api::Family;

pub use args::{ConvertArgs, EXIT_STATUS, FileArgs, RenderArgs, ValidateArgs};
pub use convert::convert;
pub use render::render;
pub use validate::validate;

use crate::manifests::{self, Document, DocumentLocation};
use check::CheckResult;

/// Exit status; the order is that of the codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    #[default]
    Fine,
    /// An object, or the text around it, is wrong.
    Invalid,
    /// A file is missing, or a version does not exist.
    Usage,
}

impl Ending {
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Invalid => 1,
            Self::Usage => 2,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Text for standard output.
    pub out: String,
    /// Lines for standard error.
    pub notes: Vec<String>,
    pub ending: Ending,
}

impl CommandOutput {
    fn usage(problem: impl Into<String>) -> Self {
        Self { notes: vec![problem.into()], ending: Ending::Usage, ..Self::default() }
    }

    fn note(&mut self, note: impl Into<String>) {
        self.notes.push(one_line(&note.into()));
    }

    fn refuse(&mut self, problem: impl Into<String>) {
        self.note(problem);
        self.ending = self.ending.max(Ending::Invalid);
    }

    fn report(&mut self, location: &DocumentLocation, checked: &CheckResult) {
        checked.warnings.iter().for_each(|warning| self.note(format!("{location}: warning: {warning}")));
        checked.errors.iter().for_each(|error| self.refuse(format!("{location}: {error}")));
    }

    /// Reads the documents, and reports those that cannot be read. None: a file cannot be read.
    fn read(&mut self, files: &FileArgs) -> Option<Vec<Document>> {
        match manifests::read(&files.files, files.recursive) {
            Ok(read) => {
                let documents =
                    read.into_iter().filter_map(|one| one.map_err(|error| self.refuse(error.to_string())).ok());
                Some(documents.collect())
            }
            Err(error) => {
                *self = Self::usage(error.to_string());
                None
            }
        }
    }

    /// Refuses files without an object of ours, which are most likely the wrong files. To be called last.
    fn none_of_ours(&mut self, what: &str) {
        if self.ending == Ending::Fine {
            self.refuse(format!("there is nothing to {what}: no document has a kind that this command supports"));
        }
    }
}

/// Replaces control characters: names and keys come from files, and must not break a line.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The family of an object by its group and kind, and its version.
fn family(object: &Value) -> Option<(Family, &str)> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    let family = Family::ALL.into_iter().find(|family| family.group() == group && object["kind"] == family.kind())?;
    Some((family, version))
}

/// The object as messages name it.
fn describe(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let metadata = &object["metadata"];
    let name = if metadata["name"].is_null() { &metadata["generateName"] } else { &metadata["name"] };
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{}", word(&object["kind"]), word(name)),
        None => format!("{} {}", word(&object["kind"]), word(name)),
    }
}
