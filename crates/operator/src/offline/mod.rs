//! What can be said of manifests without a cluster: `steersman convert`, `validate` and `render`.
//! Comes in: the arguments of one of them; goes out: what to print where, and the exit status.

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

use crate::manifests::{self, Document};

/// How it ended. The order is that of the exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    #[default]
    Fine,
    /// An object, or the text around it, is wrong.
    Invalid,
    /// What was asked for cannot be done at all: a file is not there, a version does not exist.
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

/// What a command has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// For standard output.
    pub out: String,
    /// Lines for standard error.
    pub notes: Vec<String>,
    pub ending: Ending,
}

impl Told {
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

    /// The documents that can be read; the others are told. None: not even the files can.
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

    /// To be asked at the end: files without anything of ours are most likely the wrong files.
    fn none_of_ours(&mut self, what: &str) {
        if self.ending == Ending::Fine {
            self.refuse(format!("there is nothing to {what}: no document is of a kind that this command knows"));
        }
    }
}

/// Names and keys come from files; none of them may begin a line of its own.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// The family of an object by its group and kind, and the version that it is written in.
fn family(object: &Value) -> Option<(Family, &str)> {
    let (group, version) = object["apiVersion"].as_str()?.split_once('/')?;
    let family = Family::ALL.into_iter().find(|family| family.group() == group && object["kind"] == family.kind())?;
    Some((family, version))
}

/// As people speak of an object.
fn named(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let metadata = &object["metadata"];
    let name = if metadata["name"].is_null() { &metadata["generateName"] } else { &metadata["name"] };
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{}", word(&object["kind"]), word(name)),
        None => format!("{} {}", word(&object["kind"]), word(name)),
    }
}
