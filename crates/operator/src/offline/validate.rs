//! Runs `steersman validate`, which reports whether manifests would be accepted.

use crate::offline::check::check;
use crate::offline::schema::Schemas;
use crate::offline::{CommandOutput, ValidateArgs, describe, family};

pub fn validate(args: &ValidateArgs) -> anyhow::Result<CommandOutput> {
    let mut output = CommandOutput::default();
    let Some(documents) = output.read(&args.files) else { return Ok(output) };
    let mut schemas = Schemas::default();
    let (mut ours, mut refer) = (0, false);
    for document in documents {
        let (location, name) = (&document.location, describe(&document.object));
        let Some((family, version)) = family(&document.object) else {
            output.note(format!("{location}: {name} is skipped: it is not a kind of Steersman"));
            continue;
        };
        ours += 1;
        let checked = check(&mut schemas, family, version, &document.object, None)?;
        refer |= checked.refers;
        output.report(location, &checked);
        if checked.errors.is_empty() {
            output.out.push_str(&format!("{location}: {name} is valid\n"));
        }
    }
    if ours == 0 {
        output.none_of_ours("validate");
    }
    if refer {
        output.note("not checked without a cluster: whether the referenced Secrets and ConfigMaps exist");
    }
    Ok(output)
}
