//! `steersman render`: what Steersman would write for an object.
//! Comes in: manifests; goes out: the children of their objects, as a cluster without any of them would get them.

mod base;
mod children;
mod config;
mod header;

use anyhow::Context;
use serde_json::Value;
use steersman_api::Family;
use steersman_api::llamastack::v1alpha2::LlamaStackDistributionSpec;
use steersman_plan::field_names;
use steersman_plan::llamastack::config::{Base, Source, base as bases, source};

use self::config::Configuration;
use crate::args::Manifests;
use crate::manifests::Document;
use crate::offline::check::check;
use crate::offline::schema::Schemas;
use crate::offline::{Ending, RenderArgs, Told, family, named, print};

/// What was made of one document.
struct Rendered {
    header: String,
    objects: Vec<Value>,
}

/// All objects or none, because what is printed may be piped into `kubectl apply`.
pub fn render(args: &RenderArgs) -> anyhow::Result<Told> {
    let mut told = Told::default();
    let base = match args.base.as_deref().map(base::read) {
        None => None,
        Some(Ok(base)) => Some(base),
        Some(Err(base::BaseError::File(problem))) => return Ok(Told::usage(problem)),
        Some(Err(base::BaseError::Content(problem))) => {
            told.refuse(problem);
            return Ok(told);
        }
    };
    let Some(documents) = told.read(&args.files) else { return Ok(told) };
    let beside: Vec<Value> = documents.iter().map(|document| document.object.clone()).collect();
    let mut schemas = Schemas::default();
    let (mut ours, mut rendered) = (0, Vec::new());
    for document in documents {
        let (place, name) = (&document.place, named(&document.object));
        match family(&document.object) {
            Some((Family::Llsd, version)) => {
                ours += 1;
                rendered.extend(one(&mut told, &mut schemas, &document, version, base.as_ref(), &beside)?);
            }
            Some(_) => {
                told.note(format!("{place}: {name} is passed over: this version renders LlamaStackDistribution only"))
            }
            None => told.note(format!("{place}: {name} is passed over: it is none of Steersman's kinds")),
        }
    }
    if ours == 0 {
        told.none_of_ours("render");
    }
    if told.ending == Ending::Fine {
        told.out = written(&rendered, args.output)?;
    }
    Ok(told)
}

fn written(rendered: &[Rendered], form: Manifests) -> anyhow::Result<String> {
    if form == Manifests::Json {
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
    told: &mut Told,
    schemas: &mut Schemas,
    document: &Document,
    version: &str,
    given: Option<&Base>,
    beside: &[Value],
) -> anyhow::Result<Option<Rendered>> {
    let place = &document.place;
    let checked = check(schemas, Family::Llsd, version, &document.object, given)?;
    checked.warnings.iter().for_each(|warning| told.note(format!("{place}: warning: {warning}")));
    checked.errors.iter().for_each(|error| told.refuse(format!("{place}: {error}")));
    let Some(stored) = checked.stored else { return Ok(None) };
    if !stored["metadata"]["name"].is_string() {
        told.refuse(format!("{place}: metadata.name: Required value: the names of the children begin with it"));
        return Ok(None);
    }
    let names = field_names(Family::Llsd, version);
    let spec: LlamaStackDistributionSpec =
        serde_json::from_value(stored["spec"].clone()).with_context(|| format!("{place}: the spec cannot be read"))?;
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
                problems.iter().for_each(|problem| told.refuse(format!("{place}: {}", problem.render(&names))));
                return Ok(None);
            }
        },
        Source::Override => Configuration::of_the_user(&spec),
        Source::Distribution => Configuration::of_the_image(),
    };
    let children = children::of(&stored, given, beside, &names)?;
    children.warnings.into_iter().for_each(|warning| told.note(format!("{place}: warning: {warning}")));
    if !children.blockers.is_empty() {
        children.blockers.into_iter().for_each(|blocker| told.refuse(format!("{place}: {blocker}")));
        return Ok(None);
    }
    children.unlike.iter().for_each(|what| told.note(format!("{place}: note: {what}")));
    let header = header::text(&named(&document.object), &place.to_string(), &configuration, &children.unlike);
    Ok(Some(Rendered { header, objects: children.objects }))
}
