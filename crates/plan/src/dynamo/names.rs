//! Names, labels and annotations around one request.
//! Comes in: the request's name; goes out: what its Job, its output and its graph are called and how they are found.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub const LABEL_NAME: &str = "dgdr.nvidia.com/name";
pub const LABEL_NAMESPACE: &str = "dgdr.nvidia.com/namespace";
pub const LABEL_MANAGED_BY: &str = "nvidia.com/managed-by";
pub const MANAGED_BY: &str = "dynamo-operator";
pub const LABEL_APP: &str = "app";
pub const LABEL_REQUEST: &str = "dgdr";

/// On the pods of profiling Jobs, and of no others: their request. A cluster has many other Jobs, whose pods nobody here needs
/// to watch.
pub const LABEL_PROFILED: &str = "steersman.dev/profiled-request";

/// The generated graph as YAML. Not empty: it has not been created yet. Empty: it was, and has been seen.
pub const GENERATED_GRAPH: &str = "nvidia.com/generated-dgd-spec";
/// What else the profiler generated, as documents of YAML.
pub const ADDITIONAL: &str = "dgdr.nvidia.com/additional-resources";
/// On the Job and on the request: which spec the profiling began with.
pub const ACCEPTED_SPEC: &str = "steersman.dev/accepted-spec";
/// On a graph: the request that it was made for. Its labels say a name only, and names come back.
pub const REQUEST_UID: &str = "steersman.dev/request-uid";

/// The field manager of everything that is written for requests.
pub const MANAGER: &str = "steersman/dynamo";

/// Of the Go operator; taken off when the request goes, never put on.
pub const FINALIZER: &str = "nvidia.com/finalizer";

pub const SERVICE_ACCOUNT: &str = "dgdr-profiling-job";
pub const ROLE_BINDING: &str = "dgdr-profiling-job-binding";
pub const TOKEN_SECRET: &str = "hf-token-secret";
pub const TOKEN_KEY: &str = "HF_TOKEN";
pub const PULL_SECRET: &str = "nvcr-imagepullsecret";

/// A Job's name becomes a label of its pods.
const LABEL_LIMIT: usize = 63;
pub const JOB_PREFIX: &str = "profile-";

pub fn profiling_job(request: &str) -> String {
    format!("{JOB_PREFIX}{request}")
}

/// The ConfigMap in which the profiler's sidecar delivers.
pub fn output(request: &str) -> String {
    format!("dgdr-output-{request}")
}

/// What `overrides.dgd` says, or the request's name with a suffix. The profiler's own name is the same for every request.
pub fn graph(request: &str, wanted: Option<&Map<String, Value>>) -> String {
    let wanted = wanted.and_then(|graph| graph.get("metadata")?.get("name")?.as_str());
    wanted.filter(|name| !name.is_empty()).map_or_else(|| format!("{request}-dgd"), str::to_owned)
}

/// What the API server accepts as the name of an object: small letters, digits, `-` and `.`, in parts that begin and end with
/// one of the first two.
pub fn is_valid(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part =
        |part: &str| part.starts_with(letter) && part.ends_with(letter) && part.chars().all(|c| letter(c) || c == '-');
    name.len() <= 253 && name.split('.').all(part)
}

pub fn job_labels(request: &str) -> BTreeMap<String, String> {
    map(&[(LABEL_APP, "dynamo-profiler"), (LABEL_REQUEST, request), (LABEL_MANAGED_BY, MANAGED_BY)])
}

/// On everything that outlives the request, and on its output: how it is found again.
pub fn labels(request: &str, namespace: &str) -> BTreeMap<String, String> {
    map(&[(LABEL_NAME, request), (LABEL_NAMESPACE, namespace), (LABEL_MANAGED_BY, MANAGED_BY)])
}

/// On the account of the profiling Jobs, which all requests of a namespace share.
pub fn account_labels() -> BTreeMap<String, String> {
    map(&[
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        ("app.kubernetes.io/component", "rbac"),
        ("app.kubernetes.io/name", SERVICE_ACCOUNT),
    ])
}

/// How long a request's name may be, for the Job and its label.
pub const NAME_LIMIT: usize = LABEL_LIMIT - JOB_PREFIX.len();

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
