//! Runs `steersman convert`, which prints manifests in another version of their API.

use serde_json::Value;
use steersman_api::Family;
use steersman_api::convert::{self, ConvertError};

use crate::args::Manifests;
use crate::offline::{CommandOutput, ConvertArgs, Ending, family, named, print};

/// Prints all documents or none: the output may replace the file.
pub fn convert(args: &ConvertArgs) -> anyhow::Result<CommandOutput> {
    let wanted = match Wanted::of(args.to.as_deref()) {
        Ok(wanted) => wanted,
        Err(problem) => return Ok(CommandOutput::usage(problem)),
    };
    let mut output = CommandOutput::default();
    let Some(documents) = output.read(&args.files) else { return Ok(output) };
    let (mut objects, mut ours) = (Vec::new(), 0);
    for document in documents {
        let known = family(&document.object).map(|(family, _)| family);
        let Some(to) = known.and_then(|family| wanted.version(family)) else {
            let why = known.map_or("it is none of Steersman's kinds", |_| "its API has no such version");
            output.note(format!("{}: {} is left as it is: {why}", document.place, named(&document.object)));
            objects.push(document.object);
            continue;
        };
        match convert::convert(document.object.clone(), &to) {
            Ok(converted) => {
                ours += 1;
                converted.lost.iter().for_each(|lost| output.note(format!("{}: {lost}", document.place)));
                objects.push(converted.object);
            }
            Err(ConvertError::UnknownKind { .. }) => {
                ours += 1;
                output.note(format!(
                    "{}: {} is left as it is: it is not converted",
                    document.place,
                    named(&document.object)
                ));
                objects.push(document.object);
            }
            Err(error) => output.refuse(format!("{}: {error}", document.place)),
        }
    }
    if ours == 0 {
        output.none_of_ours("convert");
    }
    if output.ending == Ending::Fine {
        output.out = written(&objects, args.output)?;
    }
    Ok(output)
}

fn written(objects: &[Value], form: Manifests) -> anyhow::Result<String> {
    match (form, objects) {
        (Manifests::Yaml, objects) => print::documents(objects),
        (Manifests::Json, [one]) => print::json(one),
        (Manifests::Json, several) => print::list(several),
    }
}

enum Wanted {
    Stored,
    Version { group: Option<String>, version: String },
}

impl Wanted {
    fn of(given: Option<&str>) -> Result<Self, String> {
        let Some(given) = given else { return Ok(Self::Stored) };
        let wanted = match given.split_once('/') {
            Some((group, version)) => Self::Version { group: Some(group.to_owned()), version: version.to_owned() },
            None => Self::Version { group: None, version: given.to_owned() },
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
        Err(format!("--to {given}: there is no such version; there are {}", known.join(", ")))
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
