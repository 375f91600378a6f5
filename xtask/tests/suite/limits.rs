//! The numbers in the limits of docs/security.md are those of the code.

use std::fs;
use std::path::Path;

/// File, declaration of the limit, and the words on the page. Whoever changes the one has to change the other.
const LIMITS: &[(&str, &str, &str)] = &[
    ("operator/src/webhooks/admission.rs", "MAX_REVIEW_BYTES: usize = 8 * 1024 * 1024;", "8 MiB; decision within 8 s"),
    ("operator/src/webhooks/mod.rs", "HANDLER_TIMEOUT: Duration = Duration::from_secs(8);", "decision within 8 s"),
    ("operator/src/webhooks/body.rs", "MAX_BODY_BYTES: usize = 32 * 1024 * 1024;", "32 MiB, 100,000 objects"),
    ("operator/src/webhooks/conversion.rs", "MAX_OBJECTS: usize = 100_000;", "32 MiB, 100,000 objects"),
    ("operator/src/webhooks/conversion.rs", "MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;", "4 MiB for each object"),
    ("operator/src/webhooks/body.rs", "MAX_SMALL_BYTES: usize = 256 * 1024;", "32 MiB for those up to 256 KiB"),
    (
        "operator/src/webhooks/body.rs",
        "SMALL_BUDGET_KIB: u32 = 32 * 1024;",
        "32 MiB for those up to 256 KiB, 16 MiB for one",
    ),
    (
        "operator/src/webhooks/body.rs",
        "BASE_SENDING_TIME: Duration = Duration::from_secs(3);",
        "3 s, plus 1 s for each 4 MiB",
    ),
    ("operator/src/webhooks/mod.rs", "MAX_CONCURRENT_REVIEWS: u32 = 4;", "4, 3 for one address"),
    ("operator/src/webhooks/mod.rs", "MAX_REVIEWS_PER_ADDRESS: u32 = 3;", "4, 3 for one address"),
    ("operator/src/webhooks/mod.rs", "MAX_CONCURRENT_HANDLERS: u32 = 64;", "64 validations, 48 for one address"),
    ("operator/src/webhooks/mod.rs", "MAX_HANDLERS_PER_ADDRESS: u32 = 48;", "64 validations, 48 for one address"),
    (
        "operator/src/webhooks/llamastack/references.rs",
        "MAX_LOOKUPS: usize = 64;",
        "64 objects, with one SubjectAccessReview",
    ),
    (
        "operator/src/webhooks/llamastack/references.rs",
        "MAX_CONCURRENT_LOOKUPS: usize = 32;",
        "4 s; 32 at a time for all",
    ),
    (
        "operator/src/webhooks/llamastack/references.rs",
        "MAX_LOOKUP_TIME: Duration = Duration::from_secs(4);",
        "4 s; 32 at",
    ),
    ("runtime/src/serve/mod.rs", "MAX_CONNECTIONS: usize = 1024;", "1,024 | a new one replaces"),
    ("runtime/src/serve/mod.rs", "MAX_HEAD_BYTES: usize = 32 * 1024;", "32 KiB, 5 s; 120 s idle"),
    ("runtime/src/serve/mod.rs", "HEAD_TIMEOUT: Duration = Duration::from_secs(5);", "32 KiB, 5 s; 120 s idle"),
    ("runtime/src/serve/mod.rs", "IDLE_TIMEOUT: Duration = Duration::from_secs(120);", "32 KiB, 5 s; 120 s idle"),
    ("runtime/src/serve/scrape.rs", "MAX_UNKNOWN_REVIEWS: usize = 4;", "4; 16 for known tokens; 1 s"),
    ("runtime/src/serve/scrape.rs", "MAX_KNOWN_REVIEWS: usize = 16;", "4; 16 for known tokens; 1 s"),
    ("runtime/src/open_files.rs", "NEEDED: u64 = 4096;", "below 4,096"),
    ("runtime/src/controller/fair_queue.rs", "MAX_STARTED: usize = 64;", "of each kind, 64 are started"),
    ("runtime/src/controller/runner.rs", "CONCURRENCY: u16 = 16;", "16 of them at a time"),
    ("runtime/src/controller/object_cache.rs", "MAX_OBJECT_BYTES: usize = 256 << 10;", "256 KiB for each object"),
    ("runtime/src/store/cache.rs", "MAX_TEXT_BYTES: usize = 256 << 10;", "256 KiB for each object"),
    ("runtime/src/store/records.rs", "MAX_NAMESPACE_BYTES: usize = 8 << 20;", "8 MiB for each namespace"),
    ("runtime/src/store/records.rs", "MAX_BYTES: usize = 256 << 20;", "256 MiB in total"),
    ("runtime/src/store/records.rs", "pub const PAGE: u32 = 100;", "100; 25 of kinds with large objects"),
    ("runtime/src/store/records.rs", "SMALL_PAGE: u32 = 25;", "100; 25 of kinds with large objects"),
    (
        "runtime/src/store/relist.rs",
        "RELIST_INTERVAL: Duration = Duration::from_secs(30 * 60);",
        "every 30 to 36 minutes",
    ),
    ("runtime/src/apply/events.rs", "MAX_NOTE_BYTES: usize = 1024;", "note of an event | 1,024 bytes"),
    ("runtime/src/apply/events.rs", "MAX_OBJECT_EVENTS: u32 = 100;", "100 for each object, 5,000 for each namespace"),
    (
        "runtime/src/apply/events.rs",
        "MAX_NAMESPACE_EVENTS: u32 = 5_000;",
        "100 for each object, 5,000 for each namespace",
    ),
    ("runtime/src/apply/events.rs", "WINDOW: Duration = Duration::from_secs(600);", "events in 10 minutes"),
    ("runtime/src/http/http_client.rs", "MAX_REDIRECTS: usize = 5;", "at most 5 redirects"),
    ("plan/src/yaml.rs", "MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;", "2 MiB of text, 100 documents"),
    ("plan/src/yaml.rs", "MAX_DOCUMENTS: usize = 100;", "2 MiB of text, 100 documents, 2,000 keys"),
    ("plan/src/yaml.rs", "MAX_KEYS: usize = 2_000;", "2,000 keys with YAML, 100,000 nodes"),
    ("plan/src/yaml.rs", "MAX_NODES: usize = 100_000;", "100,000 nodes, 4 MiB of scalars"),
    ("plan/src/yaml.rs", "MAX_SCALAR_BYTES: usize = 4 * 1024 * 1024;", "4 MiB of scalars, 1,000 anchors or aliases"),
    ("plan/src/yaml.rs", "MAX_ALIASES: usize = 1_000;", "1,000 anchors or aliases, 64 levels"),
    ("plan/src/yaml.rs", "MAX_DEPTH: usize = 64;", "64 levels"),
    ("api/src/meta/conditions.rs", "MESSAGE_LIMIT: usize = 32_768;", "32,768 characters"),
    ("plan/src/llamastack/config/limits.rs", "MAX_RESOURCES: usize = 2_000;", "2,000 models, tools and shields each"),
    ("plan/src/llamastack/config/limits.rs", "MAX_PROVIDERS: usize = 200;", "200 providers"),
    ("plan/src/llamastack/config/limits.rs", "MAX_SECRET_REFERENCES: usize = 500;", "500 references to Secrets"),
    ("plan/src/llamastack/config/limits.rs", "MAX_DISABLED: usize = 100;", "100 disabled APIs"),
    ("plan/src/llamastack/config/limits.rs", "MAX_POD_ENTRIES: usize = 1_000;", "1,000 entries of `env`"),
    ("plan/src/llamastack/config/limits.rs", "MAX_NAME_BYTES: usize = 1_024;", "images of 1,024 bytes"),
    ("plan/src/llamastack/validate/mod.rs", "MAX_PRESERVED_BYTES: usize = 200_000;", "200,000 bytes as JSON"),
    ("plan/src/llamastack/config/mod.rs", "SIZE_LIMIT: usize = 1_000_000;", "1,000,000 bytes"),
    ("plan/src/llamastack/build/ca.rs", "COUNT_LIMIT: usize = 1000;", "1,000 certificates, 10 MiB, keys of 253"),
    ("plan/src/llamastack/build/ca.rs", "SIZE_LIMIT: usize = 10_485_760;", "1,000 certificates, 10 MiB, keys of 253"),
    ("plan/src/llamastack/build/ca.rs", "KEY_LIMIT: usize = 253;", "1,000 certificates, 10 MiB, keys of 253"),
    ("plan/src/llamastack/config/base/labels.rs", "LABEL_TEXT_LIMIT: usize = 50 * 1024;", "50 KiB; 1 MiB as a file"),
    ("plan/src/llamastack/config/base/labels.rs", "LAYER_FILE_LIMIT: usize = 1024 * 1024;", "50 KiB; 1 MiB as a file"),
    ("plan/src/llamastack/config/base/labels.rs", "MAX_PATH_BYTES: usize = 1024;", "a path of 1,024 bytes"),
    ("operator/src/llamastack/oci/registry/image.rs", "MANIFEST_LIMIT: usize = 4 * 1024 * 1024;", "4 MiB each"),
    (
        "operator/src/llamastack/oci/registry/image.rs",
        "LAYER_LIMIT: usize = 16 * 1024 * 1024;",
        "16 MiB compressed, 64 MiB",
    ),
    ("operator/src/llamastack/oci/registry/layer.rs", "INFLATED_LIMIT: u64 = 64 * 1024 * 1024;", "64 MiB inflated"),
    (
        "operator/src/llamastack/oci/registry/session.rs",
        "TOKEN_LIMIT: usize = 64 * 1024;",
        "token response of a registry | 64 KiB",
    ),
    ("operator/src/llamastack/oci/registry/slots.rs", "MAX_SLOTS: usize = 64;", "64 results are cached"),
    (
        "operator/src/llamastack/oci/mod.rs",
        "READ_TIMEOUT: Duration = Duration::from_secs(30);",
        "reading one image | 30 s",
    ),
    ("operator/src/llamastack/observe/server/poll.rs", "MAX_RESPONSE_BYTES: usize = 512 * 1024;", "512 KiB, 5 s"),
    (
        "operator/src/llamastack/observe/server/mod.rs",
        "RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);",
        "512 KiB, 5 s",
    ),
    (
        "plan/src/llamastack/server/mod.rs",
        "MAX_MESSAGE_CHARS: usize = 500;",
        "500 characters of each provider's message",
    ),
    ("plan/src/dynamo/build/graph/mod.rs", "ANNOTATION_LIMIT: usize = 250_000;", "250,000 bytes of annotations"),
    ("operator/src/relay/files.rs", "LIMIT: usize = 1024 * 1024;", "files of the profiler | 1 MiB"),
    ("operator/src/relay/status.rs", "MAX_PHASE_CHARS: usize = 64;", "64 characters of phase"),
    ("operator/src/relay/status.rs", "MAX_MESSAGE_CHARS: usize = 1024;", "1,024 of message, 8,192 of error"),
    ("operator/src/relay/status.rs", "MAX_ERROR_CHARS: usize = 8192;", "1,024 of message, 8,192 of error"),
    ("plan/src/dynamo/validate/rules.rs", "MAX_ARGUMENT_BYTES: usize = 131_071;", "131,071 bytes"),
    (
        "plan/src/dynamo/build/graph/merge/fields.rs",
        "MAX_COMPONENTS: usize = 25;",
        "services in `spec.overrides.dgd` | 25",
    ),
    ("plan/src/dynamo/build/graph/merge/fields.rs", "MAX_CLAIMS: usize = 100;", "claims in `spec.overrides.dgd` | 100"),
    ("api/src/dynamo/convert/annotations.rs", "MAX_FIELD_BYTES: usize = 32 * 1024;", "one field of v1alpha1 | 32 KiB"),
    ("plan/src/dynamo/request.rs", "MAX_RETRY_CHARS: usize = 128;", "128 characters"),
    ("plan/src/dynamo/phase/deploying.rs", "MAX_LISTED_PODS: usize = 5;", "5; 64 images that cannot be pulled"),
    ("plan/src/dynamo/phase/deploying.rs", "MAX_REPORTED_PULLS: usize = 64;", "5; 64 images that cannot be pulled"),
    ("plan/src/pods/foreign_text.rs", "MAX_CHARS: usize = 600;", "600 characters"),
    (
        "plan/src/dynamo/phase/profiling.rs",
        "RESULT_DEADLINE: SignedDuration = SignedDuration::from_mins(5);",
        "5 minutes",
    ),
    ("api/src/variant/v1alpha1.rs", "MAX_MODEL_ID_LENGTH: usize = 512;", "512 characters"),
    ("plan/src/variant/config/mod.rs", "MAX_LOCAL_BYTES: usize = 256 * 1024;", "256 KiB for each ConfigMap"),
    (
        "operator/src/dynamo/observe/hardware/exporters.rs",
        "MAX_RESPONSE_BYTES: usize = 2 * 1024 * 1024;",
        "2 MiB, 65,536 lines",
    ),
    ("plan/src/exposition.rs", "MAX_LINES: usize = 65_536;", "2 MiB, 65,536 lines, 4,096 samples"),
    ("plan/src/dynamo/hardware/dcgm.rs", "MAX_SAMPLES: usize = 4_096;", "2 MiB, 65,536 lines, 4,096 samples"),
    ("operator/src/dynamo/observe/hardware/exporters.rs", "CONCURRENT_POLLS: usize = 32;", "32 exporters at a time"),
    (
        "operator/src/variant/prometheus/query.rs",
        "MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;",
        "64 MiB; 64 KiB for each sample",
    ),
    (
        "operator/src/variant/prometheus/response.rs",
        "MAX_SAMPLE_BYTES: usize = 64 * 1024;",
        "64 MiB; 64 KiB for each sample",
    ),
    ("operator/src/variant/prometheus/batches.rs", "MAX_SERIES: u64 = 10_000;", "10,000 series for each query"),
    (
        "operator/src/variant/prometheus/fleet_query.rs",
        "TIME_LIMIT: Duration = Duration::from_secs(30);",
        "30 s for all queries",
    ),
    (
        "operator/src/variant/prometheus/scrape.rs",
        "MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;",
        "8 MiB, 65,536 lines",
    ),
    ("operator/src/variant/prometheus/scrape.rs", "MAX_SAMPLES: usize = 512;", "512 samples that are used"),
    ("operator/src/variant/prometheus/text_format.rs", "MAX_LINE_BYTES: usize = 16 * 1024;", "16 KiB for each line"),
    (
        "operator/src/variant/prometheus/samples.rs",
        "MAX_SAMPLE_AGE: SignedDuration = SignedDuration::from_mins(5);",
        "age of a sample | 5",
    ),
    ("plan/src/variant/decision_status.rs", "MAX_FACTORS: usize = 16;", "16 and 8; 300 bytes"),
    ("plan/src/variant/decision_status.rs", "MAX_LIMITS: usize = 8;", "16 and 8; 300 bytes"),
    ("plan/src/variant/decision_status.rs", "MAX_TEXT_BYTES: usize = 300;", "16 and 8; 300 bytes"),
    (
        "operator/src/webhooks/body.rs",
        "LARGE_BUDGET_KIB: u32 = 2 * LARGE_PER_ADDRESS_KIB;",
        "64 MiB for larger ones, 32 MiB for one address",
    ),
    (
        "operator/src/webhooks/body.rs",
        "LARGE_PER_ADDRESS_KIB: u32 = (MAX_BODY_BYTES / 1024) as u32;",
        "64 MiB for larger ones, 32 MiB for one address",
    ),
    (
        "operator/src/webhooks/body.rs",
        "SMALL_PER_ADDRESS_KIB: u32 = SMALL_BUDGET_KIB / 2;",
        "32 MiB for those up to 256 KiB, 16 MiB for one",
    ),
    ("operator/src/webhooks/body.rs", "MAX_QUEUE_TIME: Duration = Duration::from_secs(8);", "8 s in the queue"),
    ("operator/src/webhooks/body.rs", "MIN_BYTES_PER_SECOND: usize = 4 * 1024 * 1024;", "3 s, plus 1 s for each 4 MiB"),
    ("operator/src/webhooks/mod.rs", "MAX_QUEUE_TIME: Duration = Duration::from_secs(8);", "others wait for up to 8 s"),
    ("operator/src/webhooks/case.rs", "MAX_REPORTED: usize = 100;", "100, of 2,048 bytes each"),
    ("operator/src/webhooks/case.rs", "MAX_MESSAGE_BYTES: usize = 2048;", "100, of 2,048 bytes each"),
    ("operator/src/webhooks/losses.rs", "MAX_REMEMBERED: usize = 10_000;", "10,000 objects are remembered"),
    ("operator/src/webhooks/losses.rs", "MAX_FIELDS: usize = 50;", "with 50 fields"),
    (
        "runtime/src/serve/mod.rs",
        "RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);",
        "120 s idle; 30 s to read a response",
    ),
    (
        "runtime/src/serve/scrape.rs",
        "MAX_QUEUE_TIME: Duration = Duration::from_secs(1);",
        "16 for known tokens; 1 s in the queue",
    ),
    ("runtime/src/serve/allowed_tokens.rs", "MAX_TOKENS: usize = 64;", "64 tokens are known"),
    ("runtime/src/store/records.rs", "MAX_DELETED: usize = 10_000;", "remembers during a write | 10,000"),
    ("operator/src/dynamo/observe/hardware/mod.rs", "NODES_PER_PAGE: u32 = 200;", "200 nodes | read in pages"),
    ("plan/src/yaml.rs", "MAX_MEMO_ENTRIES: usize = 2_000;", "2,000 results with 200,000 nodes"),
    ("plan/src/yaml.rs", "MAX_MEMO_NODES: usize = 2 * MAX_NODES;", "2,000 results with 200,000 nodes"),
    ("plan/src/llamastack/config/limits.rs", "MAX_SPREAD_CONSTRAINTS: usize = 100;", "100 spread constraints"),
    (
        "plan/src/llamastack/config/limits.rs",
        "MAX_ALLOWED_FROM: usize = 1_000;",
        "1,000 namespaces and 1,000 labels of `allowedFrom`",
    ),
    ("operator/src/llamastack/oci/mod.rs", "max_concurrent: 4,", "images read at a time | 4, of them one"),
    (
        "operator/src/relay/decide.rs",
        "MAX_DENIED_WAIT: Duration = Duration::from_secs(24 * 60 * 60);",
        "a quota, a policy or a right | 24 hours",
    ),
    (
        "operator/src/dynamo/observe/hardware/exporters.rs",
        "POLL_TIMEOUT: Duration = Duration::from_secs(30);",
        "5 s each, 30 s for all",
    ),
    ("operator/src/variant/prometheus/batches.rs", "MAX_PERIODS: usize = 8;", "8 periods for each metric"),
    ("operator/src/variant/metrics/mod.rs", "MAX_LABEL_BYTES: usize = 128;", "operator's metrics | 128 bytes"),
    ("operator/src/variant/prometheus/scrape.rs", "max_concurrent: 32,", "32 at a time, 8 of them in one namespace"),
    (
        "operator/src/variant/prometheus/scrape.rs",
        "max_concurrent_per_namespace: 8,",
        "32 at a time, 8 of them in one namespace",
    ),
    ("operator/src/variant/prometheus/scrape.rs", "max_pods: 1_000,", "scrapes of all pods | 5 s; 1,000 pods"),
    ("operator/src/variant/prometheus/scrape.rs", "answer: Duration::from_secs(2),", "2 s for each port"),
    ("operator/src/variant/prometheus/scrape.rs", "limit: Duration::from_secs(5),", "scrapes of all pods | 5 s"),
    ("operator/src/variant/prometheus/scrape.rs", "pause: SignedDuration::from_mins(1),", "For a minute, only pods"),
];

#[test]
fn security_page_has_the_limits_of_the_code() {
    let read = |path: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
    };
    let page = read("docs/security.md");
    let mut wrong = Vec::new();
    for (file, declaration, words) in LIMITS {
        if !read(&format!("crates/{file}")).contains(declaration) {
            wrong.push(format!("{file} has no `{declaration}`; correct {words:?} in docs/security.md, and this table"));
        }
        if !page.contains(words) {
            wrong.push(format!("docs/security.md does not say {words:?} for `{declaration}`"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
