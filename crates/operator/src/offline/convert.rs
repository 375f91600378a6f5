//! Runs `steersman convert`, which prints manifests in another version of their API.

use serde_json::Value;
use steersman_api::Family;
use steersman_api::convert::{self, ConvertError};

use crate::args::ManifestFormat;
use crate::offline::{CommandOutput, ConvertArgs, Ending, describe, family, print};

/// Prints all documents or none: the output may replace the file.
pub fn convert(args: &ConvertArgs) -> anyhow::Result<CommandOutput> {
    let wanted = match TargetVersion::of(args.to.as_deref()) {
        Ok(wanted) => wanted,
        Err(problem) => return Ok(CommandOutput::usage(problem)),
    };
    let mut output = CommandOutput::default();
    let Some(documents) = output.read(&args.files) else { return Ok(output) };
    let (mut objects, mut ours) = (Vec::new(), 0);
    for document in documents {
        let known = family(&document.object).map(|(family, _)| family);
        let Some(to) = known.and_then(|family| wanted.version(family)) else {
            let why = known.map_or("it is not a kind of Steersman", |_| "its API has no such version");
            output.note(format!("{}: {} is not converted: {why}", document.location, describe(&document.object)));
            objects.push(document.object);
            continue;
        };
        match convert::convert(document.object.clone(), &to) {
            Ok(converted) => {
                ours += 1;
                converted.lost.iter().for_each(|lost| output.note(format!("{}: {lost}", document.location)));
                objects.push(converted.object);
            }
            Err(ConvertError::UnknownKind { .. }) => {
                ours += 1;
                output.note(format!(
                    "{}: {} is not converted: its kind has no conversion",
                    document.location,
                    describe(&document.object)
                ));
                objects.push(document.object);
            }
            Err(error) => output.refuse(format!("{}: {error}", document.location)),
        }
    }
    if ours == 0 {
        output.none_of_ours("convert");
    }
    if output.ending == Ending::Fine {
        output.out = render(&objects, args.output)?;
    }
    Ok(output)
}

fn render(objects: &[Value], form: ManifestFormat) -> anyhow::Result<String> {
    match (form, objects) {
        (ManifestFormat::Yaml, objects) => print::documents(objects),
        (ManifestFormat::Json, [one]) => print::json(one),
        (ManifestFormat::Json, several) => print::list(several),
    }
}

enum TargetVersion {
    Stored,
    Version { group: Option<String>, version: String },
}

impl TargetVersion {
    fn of(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::Stored) };
        let wanted = match text.split_once('/') {
            Some((group, version)) => Self::Version { group: Some(group.to_owned()), version: version.to_owned() },
            None => Self::Version { group: None, version: text.to_owned() },
        };
        if Family::ALL.into_iter().any(|family| wanted.version(family).is_some()) {
            return Ok(wanted);
        }
        let known: Vec<String> = [Family::Dgdr, Family::Llsd]
            .map(|family| {
                let versions = family.served_versions().iter().map(|version| format!("{}/{version}", family.group()));
                versions.collect::<Vec<_>>().join(", ")
            })
            .to_vec();
        Err(format!("--to {text}: there is no such version; use one of {}", known.join(", ")))
    }

    /// The apiVersion, if the family has that version.
    fn version(&self, family: Family) -> Option<String> {
        let version = match self {
            Self::Stored => family.storage_version(),
            Self::Version { group, version } => {
                group.as_deref().is_none_or(|group| group == family.group()).then_some(())?;
                family.served_versions().iter().find(|known| *known == version)?
            }
        };
        Some(format!("{}/{version}", family.group()))
    }
}
