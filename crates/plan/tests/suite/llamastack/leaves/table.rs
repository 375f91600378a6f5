//! What each field of a v1alpha2 spec changes, with values that show it. `xtask check` makes a page of it.
//! Comes in: nothing; goes out: one row for each leaf of the schema. A name in `<>` stands for several fields alike.

pub struct Row {
    /// Without `spec.` in front. `[]` is an entry of a list, `{}` a value under a name of the user's choice.
    pub field: &'static str,
    /// The rest of the spec, in YAML; without a distribution: `starter`. Of providers: the rest of their entry.
    pub around: &'static str,
    pub set: &'static str,
    pub changed: &'static str,
    pub effect: &'static str,
    /// The children that differ, and where the field cannot be left out, who says so.
    pub shown: &'static str,
}

/// What the names in `<>` stand for. An API has one provider or a list of them, and each row counts for both.
pub const APIS: (&str, &[&str]) = ("<api>", &["inference", "safety", "vectorIo", "toolRuntime", "telemetry"]);
pub const EXTERNAL: (&str, &[&str]) = (
    "<external>",
    &["inference", "safety", "agents", "vectorIo", "datasetIo", "scoring", "eval", "toolRuntime", "postTraining"],
);

/// Types of Kubernetes itself, which are copied as they are: all of their fields have the one row.
pub const COPIED: [(&str, &str, &str); 5] = [
    ("workload.resources", "requests and limits of the server's container", "Deployment"),
    ("workload.topologySpreadConstraints[]", "over which nodes and zones pods are spread", "Deployment"),
    ("workload.overrides.env[]", "variables of the server's container; they win over ours", "Deployment"),
    ("workload.overrides.volumes[]", "volumes of the pods, beside ours", "Deployment"),
    ("workload.overrides.volumeMounts[]", "mounts of the server's container, beside ours", "Deployment"),
];

const fn row(
    field: &'static str,
    around: &'static str,
    [set, changed]: [&'static str; 2],
    effect: &'static str,
    shown: &'static str,
) -> Row {
    Row { field, around, set, changed, effect, shown }
}

const CONFIG: &str = "ConfigMap, Deployment";
const NEEDED: &str = "ConfigMap, Deployment; refused without";
const POD_NEEDED: &str = "Deployment; refused without";
const KEY: &str = "the key in that Secret";
const OTHERWISE: &str = "the same, written the other way";
const MODEL: &str =
    "{providers: {inference: [{id: one, provider: a}, {id: other, provider: b}]}, resources: {models: [{name: m}]}}";
const SCALED: &str = "{workload: {autoscaling: {maxReplicas: 5}}}";
const NAMES: [&str; 2] = ["one", "other"];

pub const ROWS: &[Row] = &[
    row(
        "distribution.name",
        "{distribution: {}}",
        ["starter", "postgres-demo"],
        "the image, and the base of the configuration",
        NEEDED,
    ),
    row(
        "distribution.image",
        "{distribution: {}}",
        ["quay.io/me/stack:1", "quay.io/me/stack:2"],
        "the image; its labels are the base of the configuration",
        POD_NEEDED,
    ),
    row("providers.<api>.provider", "", NAMES, "the type of an entry under `providers` in config.yaml", NEEDED),
    row("providers.<api>.id", "", NAMES, "the id of that entry", CONFIG),
    row("providers.<api>.endpoint", "", ["http://one:1", "http://other:1"], "the address in that entry", CONFIG),
    row("providers.<api>.settings", "", ["{depth: 1}", "{depth: 2}"], "settings of that entry, as they are", CONFIG),
    row(
        "providers.<api>.apiKey.name",
        "apiKey: {key: k}",
        NAMES,
        "the Secret that the API key is taken from, as a variable",
        POD_NEEDED,
    ),
    row("providers.<api>.apiKey.key", "apiKey: {name: s}", NAMES, KEY, POD_NEEDED),
    row("providers.<api>.apiKey.secretKeyRef.name", "apiKey: {secretKeyRef: {key: k}}", NAMES, OTHERWISE, POD_NEEDED),
    row("providers.<api>.apiKey.secretKeyRef.key", "apiKey: {secretKeyRef: {name: s}}", NAMES, OTHERWISE, POD_NEEDED),
    row(
        "providers.<api>.secretRefs{}.name",
        "secretRefs: {token: {key: k}}",
        NAMES,
        "the Secret that the setting is taken from, as a variable",
        POD_NEEDED,
    ),
    row("providers.<api>.secretRefs{}.key", "secretRefs: {token: {name: s}}", NAMES, KEY, POD_NEEDED),
    row(
        "providers.<api>.secretRefs{}.secretKeyRef.name",
        "secretRefs: {token: {secretKeyRef: {key: k}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "providers.<api>.secretRefs{}.secretKeyRef.key",
        "secretRefs: {token: {secretKeyRef: {name: s}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "resources.models[].name",
        "{providers: {inference: [{id: one, provider: a}, {id: other, provider: b}]}, resources: {models: [{}]}}",
        NAMES,
        "a model that the server registers",
        NEEDED,
    ),
    row("resources.models[].provider", MODEL, ["other", "one"], "who serves it; without, the first provider", CONFIG),
    row("resources.models[].modelType", MODEL, ["rerank", "llm"], "what it is for; without, `llm`", CONFIG),
    row("resources.models[].contextLength", MODEL, ["1000", "2000"], "metadata of the model", CONFIG),
    row("resources.models[].quantization", MODEL, ["int4", "int8"], "metadata of the model", CONFIG),
    row("resources.tools[]", "{resources: {tools: []}}", NAMES, "a tool group that the server registers", CONFIG),
    row("resources.shields[]", "{resources: {shields: []}}", NAMES, "a shield that the server registers", CONFIG),
    row(
        "storage.kv.type",
        "{storage: {kv: {endpoint: 'redis://r:6379'}}}",
        ["redis", "sqlite"],
        "where the server keeps keys and values; without, `sqlite`",
        CONFIG,
    ),
    row(
        "storage.kv.endpoint",
        "{storage: {kv: {type: redis}}}",
        ["redis://one:1", "redis://other:2"],
        "host and port of Redis",
        NEEDED,
    ),
    row(
        "storage.kv.password.name",
        "{storage: {kv: {type: redis, endpoint: 'redis://r:6379', password: {key: k}}}}",
        NAMES,
        "the Secret with the password of Redis, as a variable",
        POD_NEEDED,
    ),
    row(
        "storage.kv.password.key",
        "{storage: {kv: {type: redis, endpoint: 'redis://r:6379', password: {name: s}}}}",
        NAMES,
        KEY,
        POD_NEEDED,
    ),
    row(
        "storage.kv.password.secretKeyRef.name",
        "{storage: {kv: {type: redis, endpoint: 'redis://r:6379', password: {secretKeyRef: {key: k}}}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "storage.kv.password.secretKeyRef.key",
        "{storage: {kv: {type: redis, endpoint: 'redis://r:6379', password: {secretKeyRef: {name: s}}}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "storage.sql.connectionString.name",
        "{storage: {sql: {type: postgres, connectionString: {key: k}}}}",
        NAMES,
        "the Secret with the connection string, read by an init container",
        POD_NEEDED,
    ),
    row(
        "storage.sql.connectionString.key",
        "{storage: {sql: {type: postgres, connectionString: {name: s}}}}",
        NAMES,
        KEY,
        POD_NEEDED,
    ),
    row(
        "storage.sql.connectionString.secretKeyRef.name",
        "{storage: {sql: {type: postgres, connectionString: {secretKeyRef: {key: k}}}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "storage.sql.connectionString.secretKeyRef.key",
        "{storage: {sql: {type: postgres, connectionString: {secretKeyRef: {name: s}}}}}",
        NAMES,
        OTHERWISE,
        POD_NEEDED,
    ),
    row(
        "storage.sql.type",
        "{storage: {sql: {connectionString: {name: s, key: k}}}}",
        ["postgres", "sqlite"],
        "where the server keeps tables; without, `sqlite`",
        CONFIG,
    ),
    row("disabled[]", "{disabled: []}", ["eval", "scoring"], "an API that the server does not serve", CONFIG),
    row(
        "networking.port",
        "{networking: {}}",
        ["9000", "9001"],
        "the port of server, probe, Service, Ingress and policy",
        "Deployment, Service",
    ),
    row(
        "networking.tls.enabled",
        "{networking: {tls: {secretName: cert}}}",
        ["true", "false"],
        "HTTPS in the server, its probe and its address",
        "ConfigMap, Deployment, Service",
    ),
    row(
        "networking.tls.secretName",
        "{networking: {tls: {enabled: true}}}",
        NAMES,
        "the Secret with the certificate",
        POD_NEEDED,
    ),
    row(
        "networking.tls.caBundle.configMapName",
        "{networking: {tls: {caBundle: {}}}}",
        NAMES,
        "certificates that the server trusts, in a ConfigMap of ours",
        NEEDED,
    ),
    row(
        "networking.tls.caBundle.configMapNamespace",
        "{networking: {tls: {caBundle: {configMapName: s}}}}",
        NAMES,
        "where that ConfigMap is",
        CONFIG,
    ),
    row(
        "networking.tls.caBundle.configMapKeys[]",
        "{networking: {tls: {caBundle: {configMapName: s, configMapKeys: []}}}}",
        NAMES,
        "which of its keys count; without, `ca-bundle.crt`",
        CONFIG,
    ),
    row(
        "networking.expose.enabled",
        "{networking: {expose: {}}}",
        ["false", "true"],
        "whether there is an Ingress, or a Route on OpenShift; without, there is",
        "Ingress, Service",
    ),
    row(
        "networking.expose.hostname",
        "{networking: {expose: {enabled: true}}}",
        ["one.example.com", "other.example.com"],
        "the host name of the Ingress or Route, and `status.routeURL`",
        "Ingress",
    ),
    row(
        "networking.allowedFrom.namespaces[]",
        "{networking: {allowedFrom: {namespaces: []}}}",
        NAMES,
        "a namespace whose pods may connect",
        "NetworkPolicy",
    ),
    row(
        "networking.allowedFrom.labels[]",
        "{networking: {allowedFrom: {labels: []}}}",
        NAMES,
        "the same, by a label that the namespace has",
        "NetworkPolicy",
    ),
    row(
        "workload.replicas",
        "{workload: {}}",
        ["2", "3"],
        "how many pods there are; those that run stay",
        "Deployment, PodDisruptionBudget",
    ),
    row(
        "workload.workers",
        "{workload: {}}",
        ["2", "3"],
        "processes of each server, and the CPUs that it gets",
        "Deployment",
    ),
    row(
        "workload.autoscaling.maxReplicas",
        "{workload: {autoscaling: {}}}",
        ["4", "5"],
        "the most pods",
        "HorizontalPodAutoscaler; refused without",
    ),
    row("workload.autoscaling.minReplicas", SCALED, ["2", "3"], "the fewest pods", "HorizontalPodAutoscaler"),
    row(
        "workload.autoscaling.targetCPUUtilizationPercentage",
        SCALED,
        ["50", "60"],
        "at which load pods are added",
        "HorizontalPodAutoscaler",
    ),
    row(
        "workload.autoscaling.targetMemoryUtilizationPercentage",
        SCALED,
        ["50", "60"],
        "at which use of memory pods are added",
        "HorizontalPodAutoscaler",
    ),
    row(
        "workload.storage.size",
        "{workload: {storage: {}}}",
        ["20Gi", "30Gi"],
        "the size of the claim; later changes are told and not made",
        "PersistentVolumeClaim",
    ),
    row(
        "workload.storage.mountPath",
        "{workload: {storage: {}}}",
        ["/one", "/other"],
        "where the claim is mounted",
        "Deployment",
    ),
    row(
        "workload.podDisruptionBudget.minAvailable",
        "{workload: {podDisruptionBudget: {}}}",
        ["1", "50%"],
        "how many pods evictions leave",
        "PodDisruptionBudget",
    ),
    row(
        "workload.podDisruptionBudget.maxUnavailable",
        "{workload: {podDisruptionBudget: {}}}",
        ["2", "50%"],
        "how many pods evictions may take",
        "PodDisruptionBudget",
    ),
    row(
        "workload.overrides.command[]",
        "{workload: {overrides: {command: []}}}",
        NAMES,
        "the command of the server's container",
        "Deployment",
    ),
    row(
        "workload.overrides.args[]",
        "{workload: {overrides: {args: []}}}",
        NAMES,
        "the arguments of the server's container",
        "Deployment",
    ),
    row(
        "workload.overrides.serviceAccountName",
        "{workload: {overrides: {}}}",
        NAMES,
        "the account of the pods; its pull secrets also open the image's labels",
        "Deployment",
    ),
    row(
        "workload.overrides.terminationGracePeriodSeconds",
        "{workload: {overrides: {}}}",
        ["60", "90"],
        "how long a server may take to end",
        "Deployment",
    ),
    row(
        "externalProviders.<external>[].providerId",
        "image: i",
        NAMES,
        "the id under which the provider is merged into the configuration",
        POD_NEEDED,
    ),
    row(
        "externalProviders.<external>[].image",
        "providerId: p",
        NAMES,
        "the image of the init container that installs it",
        POD_NEEDED,
    ),
    row(
        "externalProviders.<external>[].imagePullPolicy",
        "providerId: p, image: i",
        ["Always", "Never"],
        "when that image is pulled",
        "Deployment",
    ),
    row(
        "externalProviders.<external>[].config",
        "providerId: p, image: i",
        ["{depth: 1}", "{depth: 2}"],
        "settings of the provider, as they are",
        "Deployment",
    ),
    row(
        "externalProviders.volumeSizeLimit",
        "{externalProviders: {inference: [{providerId: p, image: i}]}}",
        ["1Gi", "2Gi"],
        "how much room installed providers have",
        "Deployment",
    ),
    row(
        "overrideConfig.configMapName",
        "{overrideConfig: {}}",
        NAMES,
        "the ConfigMap whose `config.yaml` the server reads as it is",
        POD_NEEDED,
    ),
];
