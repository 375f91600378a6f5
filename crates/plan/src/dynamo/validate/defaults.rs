//! The default image of a request. All other defaults are those of the schema.

use serde_json::Value;

use super::version::canonical;
use crate::dynamo::asked;

/// The version of Dynamo whose protocol Steersman implements.
pub const DYNAMO_VERSION: &str = "1.4.0";

const PLANNER: &str = "nvcr.io/nvidia/ai-dynamo/dynamo-planner";

/// The profiler's default image: the configured one, or the planner of this version of Dynamo. None: the version is
/// invalid.
pub fn default_image(given: Option<&str>, dynamo: &str) -> Option<String> {
    let planner = || canonical(dynamo).map(|version| format!("{PLANNER}:{version}"));
    asked::given(given).map(str::to_owned).or_else(planner)
}

/// The image to set in a new request. None: it has one, or there is no default.
pub fn image<'a>(new: &Value, default: Option<&'a str>) -> Option<&'a str> {
    let spec = new["spec"].as_object()?;
    // The schema refuses a value that is not a string.
    let empty = spec.get("image").is_none_or(|image| image.is_null() || image == "");
    default.filter(|_| empty)
}
