//! Runs `steersman render`, which prints the children that Steersman would create for an object.

mod children;
mod config;

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;
use steersman_api::Family;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::field_names;
use steersman_plan::llamastack::config::{Base, Source, base as bases, read_yaml, source};

use self::config::ConfigDescription;
use crate::args::ManifestFormat;
use crate::manifests::Document;
use crate::offline::check::check;
use crate::offline::schema::Schemas;
use crate::offline::{CommandOutput, Ending, RenderArgs, describe, family, print};

struct Rendered {
    header: String,
    objects: Vec<Value>,
}

/// Prints all objects or none, because the output may be piped into `kubectl apply`.
pub fn render(args: &RenderArgs) -> anyhow::Result<CommandOutput> {
    let mut output = CommandOutput::default();
    let base = match args.base.as_deref().map(read_base) {
        None => None,
        Some(Ok(base)) => Some(base),
        Some(Err(BaseError::File(problem))) => return Ok(CommandOutput::usage(problem)),
        Some(Err(BaseError::Content(problem))) => {
            output.refuse(problem);
            return Ok(output);
        }
    };
    let Some(documents) = output.read(&args.files) else { return Ok(output) };
    let manifests: Vec<Value> = documents.iter().map(|document| document.object.clone()).collect();
    let mut schemas = Schemas::default();
    let (mut ours, mut rendered) = (0, Vec::new());
    for document in documents {
        let (location, name) = (&document.location, describe(&document.object));
        match family(&document.object) {
            Some((Family::Llsd, version)) => {
                ours += 1;
                rendered.extend(one(&mut output, &mut schemas, &document, version, base.as_ref(), &manifests)?);
            }
            Some(_) => {
                output.note(format!("{location}: {name} is skipped: this version renders only LlamaStackDistribution"))
            }
            None => output.note(format!("{location}: {name} is skipped: it is not a kind of Steersman")),
        }
    }
    if ours == 0 {
        output.none_of_ours("render");
    }
    if output.ending == Ending::Fine {
        output.out = render_objects(&rendered, args.output)?;
    }
    Ok(output)
}

enum BaseError {
    File(String),
    Content(String),
}

/// Reads the file of `--base`, for objects that name an image instead of a distribution.
fn read_base(path: &Path) -> Result<Base, BaseError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| BaseError::File(format!("{name}: {error}")))?;
    let config = read_yaml(&text).map_err(|problem| BaseError::Content(format!("{name}: {problem}")))?;
    if !config["providers"].is_object() {
        let problem = "the file has no mapping `providers`, so it is not the config.yaml of a server";
        return Err(BaseError::Content(format!("{name}: {problem}")));
    }
    // The version of the server is not known here; an unknown version counts as new.
    Ok(Base { name: name.to_string(), server_version: String::new(), config })
}

fn render_objects(rendered: &[Rendered], form: ManifestFormat) -> anyhow::Result<String> {
    if form == ManifestFormat::Json {
        let objects: Vec<Value> = rendered.iter().flat_map(|one| one.objects.iter().cloned()).collect();
        return print::list(&objects);
    }
    let mut text = String::new();
    for one in rendered {
        text.push_str(&one.header);
        for object in &one.objects {
            text.push_str("---\n");
            text.push_str(&print::yaml(object)?);
        }
    }
    Ok(text)
}

fn one(
    output: &mut CommandOutput,
    schemas: &mut Schemas,
    document: &Document,
    version: &str,
    given: Option<&Base>,
    manifests: &[Value],
) -> anyhow::Result<Option<Rendered>> {
    let location = &document.location;
    let checked = check(schemas, Family::Llsd, version, &document.object, given)?;
    let Some(stored) = checked.stored else {
        output.report(location, &checked);
        return Ok(None);
    };
    if !stored["metadata"]["name"].is_string() {
        output.refuse(format!("{location}: metadata.name: Required value: the names of the children start with it"));
        return Ok(None);
    }
    let names = field_names(Family::Llsd, version);
    let spec: LlamaStackDistributionSpec = serde_json::from_value(stored["spec"].clone())
        .with_context(|| format!("{location}: cannot decode the spec"))?;
    let distribution = spec.distribution.name.as_deref().filter(|name| !name.is_empty());
    let base = match distribution {
        Some(name) => bases::base(name),
        None => given,
    };
    let mounted = distribution.and_then(bases::distribution).is_some_and(|known| known.mounts_always);
    let configuration = match source(&spec, mounted) {
        Source::Generated => match config::generated(&stored, &spec, base) {
            Ok(made) => made,
            Err(problems) => {
                problems.iter().for_each(|problem| output.refuse(format!("{location}: {}", problem.render(&names))));
                return Ok(None);
            }
        },
        Source::Override => ConfigDescription::of_the_user(&spec),
        Source::Distribution => ConfigDescription::of_the_image(),
    };
    let children = children::of(&stored, given, manifests, &names)?;
    children.warnings.into_iter().for_each(|warning| output.note(format!("{location}: warning: {warning}")));
    if !children.blockers.is_empty() {
        children.blockers.into_iter().for_each(|blocker| output.refuse(format!("{location}: {blocker}")));
        return Ok(None);
    }
    children.differences.iter().for_each(|what| output.note(format!("{location}: note: {what}")));
    let header = configuration.header(&describe(&document.object), location, &children.differences);
    Ok(Some(Rendered { header, objects: children.objects }))
}
