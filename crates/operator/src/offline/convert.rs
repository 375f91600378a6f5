//! `steersman convert`: manifests in another version of their API.
//! Comes in: manifests; goes out: the same documents in the same order, and a line for each field that the other version
//! cannot say.

use serde_json::Value;
use steersman_api::Family;
use steersman_api::convert::{self, ConvertError};

use crate::args::Manifests;
use crate::offline::{ConvertArgs, Ending, Told, family, named, print};

/// All documents or none: half of a file is worse than none where it replaces the file.
pub fn convert(args: &ConvertArgs) -> anyhow::Result<Told> {
    let wanted = match Wanted::of(args.to.as_deref()) {
        Ok(wanted) => wanted,
        Err(problem) => return Ok(Told::usage(problem)),
    };
    let mut told = Told::default();
    let Some(documents) = told.read(&args.files) else { return Ok(told) };
    let (mut objects, mut ours) = (Vec::new(), 0);
    for document in documents {
        let known = family(&document.object).map(|(family, _)| family);
        let Some(to) = known.and_then(|family| wanted.version(family)) else {
            let why = known.map_or("it is none of Steersman's kinds", |_| "its API has no such version");
            told.note(format!("{}: {} is left as it is: {why}", document.place, named(&document.object)));
            objects.push(document.object);
            continue;
        };
        match convert::convert(document.object.clone(), &to) {
            Ok(converted) => {
                ours += 1;
                converted.lost.iter().for_each(|lost| told.note(format!("{}: {lost}", document.place)));
                objects.push(converted.object);
            }
            Err(ConvertError::UnknownKind { .. }) => {
                ours += 1;
                told.note(format!(
                    "{}: {} is left as it is: it is not converted",
                    document.place,
                    named(&document.object)
                ));
                objects.push(document.object);
            }
            Err(error) => told.refuse(format!("{}: {error}", document.place)),
        }
    }
    if ours == 0 {
        told.none_of_ours("convert");
    }
    if told.ending == Ending::Fine {
        told.out = written(&objects, args.output)?;
    }
    Ok(told)
}

fn written(objects: &[Value], form: Manifests) -> anyhow::Result<String> {
    match (form, objects) {
        (Manifests::Yaml, objects) => print::documents(objects),
        (Manifests::Json, [one]) => print::json(one),
        (Manifests::Json, several) => print::list(several),
    }
}

/// The version that was asked for.
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

    /// As an apiVersion, where the family has it.
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
