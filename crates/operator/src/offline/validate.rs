//! Runs `steersman validate`, which reports whether manifests would be accepted.

use crate::offline::check::check;
use crate::offline::schema::Schemas;
use crate::offline::{CommandOutput, ValidateArgs, family, named};

pub fn validate(args: &ValidateArgs) -> anyhow::Result<CommandOutput> {
    let mut output = CommandOutput::default();
    let Some(documents) = output.read(&args.files) else { return Ok(output) };
    let mut schemas = Schemas::default();
    let (mut ours, mut refer) = (0, false);
    for document in documents {
        let (place, name) = (&document.place, named(&document.object));
        let Some((family, version)) = family(&document.object) else {
            output.note(format!("{place}: {name} is passed over: it is none of Steersman's kinds"));
            continue;
        };
        ours += 1;
        let checked = check(&mut schemas, family, version, &document.object, None)?;
        refer |= checked.refers;
        output.report(place, &checked);
        if checked.errors.is_empty() {
            output.out.push_str(&format!("{place}: {name} is valid\n"));
        }
    }
    if ours == 0 {
        output.none_of_ours("validate");
    }
    if refer {
        output.note("without a cluster it was not checked that the Secrets and ConfigMaps that are referred to exist");
    }
    Ok(output)
}
