//! The base of an image that has no name.
//! Comes in: a file with the `config.yaml` of the image; goes out: the base, or why it is none.

use std::fs;
use std::path::Path;

use steersman_plan::llamastack::config::{Base, read_yaml};

pub enum BaseError {
    /// The file cannot be read.
    File(String),
    /// What it holds is no configuration.
    Content(String),
}

pub fn read(path: &Path) -> Result<Base, BaseError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| BaseError::File(format!("{name}: {error}")))?;
    let config = read_yaml(&text).map_err(|problem| BaseError::Content(format!("{name}: {problem}")))?;
    if !config["providers"].is_object() {
        let problem = "it has no mapping `providers`, so it is not the config.yaml of a server";
        return Err(BaseError::Content(format!("{name}: {problem}")));
    }
    // Which server reads it is not known here; such a server counts as new.
    Ok(Base { name: name.to_string(), server_version: String::new(), config })
}
