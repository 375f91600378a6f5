//! Converts DynamoGraphDeploymentRequests between v1alpha1 and v1beta1, as JSON.
//!
//! Each direction has the same steps: move every field that the other version has, overlay the result on the fields that
//! annotations kept of the other version, and keep the rest in annotations. Fields win over annotations of single fields, and
//! these over the annotations for all other fields.

use serde_json::Value;

use crate::Family;
use crate::convert::{ConvertError, Converted};

mod carry;
mod job;
mod spec;
mod status;

use crate::convert::tree::{Object, Source, leaves, text};
pub use carry::{
    CONFIG_MAP_REF, DEPLOYMENT_OVERRIDES, DEPLOYMENT_STATUS, ENABLE_GPU_DISCOVERY, OUTPUT_PVC, PROFILING_CONFIG,
    PROFILING_JOB_NAME, PROFILING_RESULTS, SPEC, STATUS, STATUS_BACKEND,
};
use carry::{Carried, Carrier};
pub use spec::shared_fields;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Alpha,
    Beta,
}

impl Version {
    fn name(self) -> &'static str {
        match self {
            Self::Alpha => "v1alpha1",
            Self::Beta => "v1beta1",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Alpha => Self::Beta,
            Self::Beta => Self::Alpha,
        }
    }
}

/// Converts an object of the other version to `to`, one of the served versions.
pub fn convert(object: Value, to: &'static str) -> Result<Converted, ConvertError> {
    let to = if to == Version::Alpha.name() { Version::Alpha } else { Version::Beta };
    let Value::Object(mut object) = object else { return Err(ConvertError::NotAnObject) };
    let whole = whole(&object);
    let mut carrier = Carrier::open(&mut object)?;
    let carried = carrier.as_mut().map(|carrier| carrier.read(to)).unwrap_or_default();
    let (spec, status) = (section(&object, "spec")?, section(&object, "status")?);
    let joined = match to {
        Version::Beta => to_beta(spec, status, carried, whole)?,
        Version::Alpha => to_alpha(spec, status, carried, whole, carrier.is_some()),
    };
    put_back(&mut object, "spec", joined.spec);
    put_back(&mut object, "status", joined.status);
    object.insert("apiVersion".to_owned(), format!("{}/{}", Family::Dgdr.group(), to.name()).into());
    let lost = match carrier {
        Some(mut carrier) => {
            carrier.write(to.other(), joined.spec_rest.rest, joined.workers_image, joined.status_rest.rest);
            carrier.close(&mut object)
        }
        None => unkept(&joined.spec_rest, &joined.status_rest, to)?,
    };
    Ok(Converted { object: Value::Object(object), lost })
}

/// Both sections in the other version, and the fields that it does not have.
struct Joined {
    spec: Object,
    spec_rest: Source,
    workers_image: bool,
    status: Object,
    status_rest: Source,
}

fn to_beta(spec: Object, status: Object, carried: Carried, whole: bool) -> Result<Joined, ConvertError> {
    if let Some(problem) = spec::config_problem(&spec) {
        return Err(ConvertError::Unreadable { path: "spec.profilingConfig.config".to_owned(), problem });
    }
    let mut split = spec::from_alpha(spec, whole);
    let spec = spec::join_beta(&mut split, carried.spec, whole);
    let state = status.get("state").cloned();
    let mut status_split = status::from_alpha(status);
    let status = status::join_beta(&mut status_split, carried.status, state.as_ref());
    Ok(Joined {
        spec,
        spec_rest: split.rest,
        workers_image: split.workers_image,
        status,
        status_rest: status_split.rest,
    })
}

fn to_alpha(spec: Object, status: Object, carried: Carried, whole: bool, keeps: bool) -> Joined {
    let mut split = spec::from_beta(spec, whole);
    let spec = spec::join_alpha(&mut split, carried.spec, whole);
    let witness = ["phase", "dgdName"].map(|name| status.get_key_value(name).map(|(k, v)| (k.clone(), v.clone())));
    let mut status_split = status::from_beta(status);
    let status = status::join_alpha(&mut status_split, carried.status);
    // These are valid in one phase or for one graph only.
    let bound = ["profilingPhase", "profilingJobName", "deploymentInfo"];
    if keeps && bound.iter().any(|name| status_split.rest.rest.contains_key(*name)) {
        status_split.rest.rest.extend(witness.into_iter().flatten());
    }
    Joined { spec, spec_rest: split.rest, workers_image: false, status, status_rest: status_split.rest }
}

/// Whether the object is complete. The partial objects of server-side apply never have a name.
fn whole(object: &Object) -> bool {
    let metadata = object.get("metadata");
    let named = ["name", "generateName"].iter().any(|name| text(metadata.and_then(|all| all.get(*name))).is_some());
    named && object.get("spec").and_then(|spec| spec.get("model")).is_some()
}

/// A copy of the section: `put_back` needs the original.
fn section(object: &Object, name: &str) -> Result<Object, ConvertError> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(section)) => Ok(section.clone()),
        Some(_) => {
            Err(ConvertError::Unreadable { path: name.to_owned(), problem: "must be an object of fields".to_owned() })
        }
    }
}

/// Writes a section. An empty one is omitted, unless it was present and empty before.
fn put_back(object: &mut Object, name: &str, section: Object) {
    let was_empty = match object.get(name) {
        Some(Value::Object(before)) => before.is_empty(),
        Some(_) => true,
        None => false,
    };
    if !section.is_empty() {
        object.insert(name.to_owned(), Value::Object(section));
    } else if !was_empty {
        object.remove(name);
    }
}

/// The losses of an object without metadata, where no annotation can keep the rest. A field that the other version does not
/// have is dropped, as server-side apply requires; a value of a wrong type is refused.
fn unkept(spec: &Source, status: &Source, to: Version) -> Result<Vec<String>, ConvertError> {
    for (section, rest) in [("spec", spec), ("status", status)] {
        if let Some((path, want)) = rest.wrong.first() {
            let problem = format!("must be {want}");
            return Err(ConvertError::Unreadable { path: format!("{section}.{path}"), problem });
        }
    }
    let paths = leaves("spec", &spec.rest).into_iter().chain(leaves("status", &status.rest));
    let version = to.name();
    let why = format!("{version} has no field for it, and an object without metadata no annotation to keep it in");
    Ok(paths.map(|path| format!("{path}: {why}")).collect())
}
