//! `steersman validate`: would these manifests be accepted?
//! Comes in: manifests; goes out: a line for each object, its errors and its warnings.

use crate::offline::check::check;
use crate::offline::schema::Schemas;
use crate::offline::{Told, ValidateArgs, family, named};

pub fn validate(args: &ValidateArgs) -> anyhow::Result<Told> {
    let mut told = Told::default();
    let Some(documents) = told.read(&args.files) else { return Ok(told) };
    let mut schemas = Schemas::default();
    let (mut ours, mut refer) = (0, false);
    for document in documents {
        let (place, name) = (&document.place, named(&document.object));
        let Some((family, version)) = family(&document.object) else {
            told.note(format!("{place}: {name} is passed over: it is none of Steersman's kinds"));
            continue;
        };
        ours += 1;
        let checked = check(&mut schemas, family, version, &document.object, None)?;
        refer |= checked.refers;
        checked.warnings.iter().for_each(|warning| told.note(format!("{place}: warning: {warning}")));
        checked.errors.iter().for_each(|error| told.refuse(format!("{place}: {error}")));
        if checked.errors.is_empty() {
            told.out.push_str(&format!("{place}: {name} is valid\n"));
        }
    }
    if ours == 0 {
        told.none_of_ours("validate");
    }
    if refer {
        told.note("without a cluster it was not checked that the Secrets and ConfigMaps that are referred to exist");
    }
    Ok(told)
}
