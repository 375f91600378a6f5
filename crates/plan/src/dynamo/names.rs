//! Names, labels and annotations of one request and its objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub const LABEL_NAME: &str = "dgdr.nvidia.com/name";
pub const LABEL_NAMESPACE: &str = "dgdr.nvidia.com/namespace";
pub const LABEL_MANAGED_BY: &str = "nvidia.com/managed-by";
pub const MANAGED_BY: &str = "dynamo-operator";
pub const LABEL_APP: &str = "app";
pub const LABEL_REQUEST: &str = "dgdr";

/// Label of the pods of profiling Jobs with the name of their request. It keeps the pods of other Jobs out of the
/// watch.
pub const LABEL_PROFILED: &str = "steersman.dev/profiled-request";

/// Annotation with the generated graph as YAML. Not empty: not created yet. Empty: created and observed.
pub const GENERATED_GRAPH: &str = "nvidia.com/generated-dgd-spec";
/// Annotation with the ConfigMaps that were generated with the graph, as YAML documents. Other kinds are skipped.
pub const ADDITIONAL: &str = "dgdr.nvidia.com/additional-resources";
/// Annotation of Job and request with a hash of the spec that profiling began with.
pub const ACCEPTED_SPEC: &str = "steersman.dev/accepted-spec";
/// Annotation of a graph with the UID of its request: labels have a name only, and names are reused.
pub const REQUEST_UID: &str = "steersman.dev/request-uid";

/// Annotation of a request: a new value makes a Failed request start again. Its Job has the same annotation.
pub const RETRY: &str = "steersman.dev/retry";

/// The field manager of everything that is written for requests.
pub const MANAGER: &str = "steersman/dynamo";

/// The Go operator's finalizer. It is removed on deletion, and never added.
pub const FINALIZER: &str = "nvidia.com/finalizer";

pub const SERVICE_ACCOUNT: &str = "dgdr-profiling-job";
pub const ROLE_BINDING: &str = "dgdr-profiling-job-binding";
pub const THOROUGH_BINDING: &str = "dgdr-profiling-job-thorough-binding";
pub const TOKEN_SECRET: &str = "hf-token-secret";
pub const TOKEN_KEY: &str = "HF_TOKEN";
pub const PULL_SECRET: &str = "nvcr-imagepullsecret";

/// The name of a Job becomes a label of its pods.
const LABEL_LIMIT: usize = 63;
pub const JOB_PREFIX: &str = "profile-";

pub fn profiling_job(request: &str) -> String {
    format!("{JOB_PREFIX}{request}")
}

/// The ConfigMap in which the profiler's sidecar delivers the result.
pub fn output(request: &str) -> String {
    format!("dgdr-output-{request}")
}

/// The name in `overrides.dgd`, or the request's name with a suffix. The profiler's own name is the same for every
/// request.
pub fn graph(request: &str, wanted: Option<&Map<String, Value>>) -> String {
    let wanted = wanted.and_then(|graph| graph.get("metadata")?.get("name")?.as_str());
    wanted.filter(|name| !name.is_empty()).map_or_else(|| format!("{request}-dgd"), str::to_owned)
}

/// Whether the API server accepts the name: lower-case letters, digits, `-` and `.`, in parts that begin and end with a
/// letter or digit.
pub fn is_valid(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part =
        |part: &str| part.starts_with(letter) && part.ends_with(letter) && part.chars().all(|c| letter(c) || c == '-');
    name.len() <= 253 && name.split('.').all(part)
}

pub fn job_labels(request: &str) -> BTreeMap<String, String> {
    map(&[(LABEL_APP, "dynamo-profiler"), (LABEL_REQUEST, request), (LABEL_MANAGED_BY, MANAGED_BY)])
}

/// Labels of the output and of all objects that outlive the request.
pub fn labels(request: &str, namespace: &str) -> BTreeMap<String, String> {
    map(&[(LABEL_NAME, request), (LABEL_NAMESPACE, namespace), (LABEL_MANAGED_BY, MANAGED_BY)])
}

/// Labels of the profiling account, which all requests of a namespace share.
pub fn account_labels() -> BTreeMap<String, String> {
    map(&[
        ("app.kubernetes.io/managed-by", MANAGED_BY),
        ("app.kubernetes.io/component", "rbac"),
        ("app.kubernetes.io/name", SERVICE_ACCOUNT),
    ])
}

/// Maximum length of a request's name, for the Job and its label.
pub const NAME_LIMIT: usize = LABEL_LIMIT - JOB_PREFIX.len();

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
