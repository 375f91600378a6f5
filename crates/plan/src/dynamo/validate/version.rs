//! Versions of Dynamo in image tags and as users write them.

use steersman_api::dynamo::v1beta1::DynamoGraphDeploymentRequestSpec;

use crate::dynamo::request;

/// Whether the tag is a version, as in `dynamo-planner:v1.2.3-cuda13`.
pub fn has_version(image: &str) -> bool {
    of_image(image).is_some()
}

/// The version in the tag.
pub fn of_image(image: &str) -> Option<[u64; 3]> {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rsplit('/').next().unwrap_or_default();
    let (_, tag) = last.rsplit_once(':')?;
    DynamoVersion::read(tag).filter(|version| version.parts == 3).map(|version| version.core)
}

/// The first version whose profiler merges overrides with the program that the Job installs.
const FIRST_WITH_PROGRAM: [u64; 3] = [1, 4, 0];

/// Whether the profiler is known to merge overrides with our program. Earlier ones merge by themselves.
pub fn merges_with_our_program(spec: &DynamoGraphDeploymentRequestSpec, default: Option<&str>) -> bool {
    let of_image = request::image_or(spec, default).and_then(of_image);
    let stated = || DynamoVersion::read(spec.runtime_version_override.as_deref()?).map(|version| version.core);
    of_image.or_else(stated).is_some_and(|version| version >= FIRST_WITH_PROGRAM)
}

/// The version in full, without a leading letter: `v1.2` is `1.2.0`. None: it is no version.
pub fn canonical(version: &str) -> Option<String> {
    let DynamoVersion { core, suffix, .. } = DynamoVersion::read(version)?;
    Some(format!("{}.{}.{}{suffix}", core[0], core[1], core[2]))
}

struct DynamoVersion<'a> {
    core: [u64; 3],
    /// Number of parts that were written.
    parts: usize,
    /// Pre-release and build, with their sign.
    suffix: &'a str,
}

impl<'a> DynamoVersion<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let (core, suffix) = text.find(['-', '+']).map_or((text, ""), |place| text.split_at(place));
        let numbers = core.split('.').map(number).collect::<Option<Vec<u64>>>()?;
        let parts = numbers.len();
        let mut core = [0; 3];
        core.get_mut(..parts)?.copy_from_slice(&numbers);
        is_suffix(suffix).then_some(Self { core, parts, suffix })
    }
}

/// Leading zeros are not allowed.
fn number(part: &str) -> Option<u64> {
    let digits = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    (digits && (part == "0" || !part.starts_with('0'))).then(|| part.parse().ok()).flatten()
}

/// Whether the text is `-rc1`, `+build.7`, both, or empty.
fn is_suffix(text: &str) -> bool {
    let words = |text: &str| {
        text.split('.').all(|word| !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
    };
    match text.strip_prefix('-') {
        Some(before) => before.split_once('+').map_or_else(|| words(before), |(rc, build)| words(rc) && words(build)),
        None => text.strip_prefix('+').is_none_or(words),
    }
}
