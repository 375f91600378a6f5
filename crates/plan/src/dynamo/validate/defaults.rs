//! What a request gets that leaves it out. All other defaults are the schema's.
//! Comes in: what the operator was told, and the request; goes out: the image to fill in.

use serde_json::Value;

use super::version::canonical;
use crate::dynamo::asked;

/// The version of Dynamo whose protocol is spoken.
pub const DYNAMO_VERSION: &str = "1.4.0";

const PLANNER: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner";

/// The profiler's image where a request names none: the one that was given, or the planner of this version of Dynamo.
/// None: there is no such version.
pub fn default_image(given: Option<&str>, dynamo: &str) -> Option<String> {
    let planner = || canonical(dynamo).map(|version| format!("{PLANNER}:{version}"));
    asked::given(given).map(str::to_owned).or_else(planner)
}

/// The image to fill into a new request. None: it has one, or there is none to fill in.
pub fn image<'a>(new: &Value, default: Option<&'a str>) -> Option<&'a str> {
    let spec = new["spec"].as_object()?;
    // What is no text is the schema's to refuse.
    let empty = spec.get("image").is_none_or(|image| image.is_null() || image == "");
    default.filter(|_| empty)
}
