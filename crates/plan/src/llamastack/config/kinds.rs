//! The types of the server's own providers and the configuration keys that they read, as of the packages 0.4 to 0.7. The
//! server silently ignores a wrong key and does not start with an unknown type. A provider that is not listed gets the
//! keys of the specification.
//!
//! `cargo xtask test --suite llamastack-real` compares the table with the packages.

use super::apis::{Api, INFERENCE, SAFETY, TELEMETRY, TOOL_RUNTIME, VECTOR_IO};
use super::version::ServerVersion;

pub(super) struct ProviderKind {
    pub api: Api,
    pub name: &'static str,
    /// `remote` or `inline`.
    pub prefix: &'static str,
    pub endpoint: Option<&'static str>,
    pub secret: Option<&'static str>,
    /// Namespace of the required `persistence` block.
    pub namespace: Option<&'static str>,
    /// File name for the required `db_path`.
    pub file: Option<&'static str>,
    /// Required keys that only the user can know.
    pub needs: &'static [&'static str],
    /// The provider rejects or forwards unknown keys, so it gets no others.
    pub exact: bool,
    /// The first server with this type. None: the oldest one has it.
    since: Option<Minor>,
    /// The first server without it. None: the newest one has it.
    until: Option<Minor>,
}

/// Major and minor version of a server.
type Minor = (u32, u32);

/// The servers whose types are all listed.
const COMPLETE: [Minor; 3] = [(0, 4), (0, 6), (0, 7)];

/// Whether a type that is not listed for this server does not exist in it.
pub(super) fn is_complete(server: &ServerVersion) -> bool {
    COMPLETE.iter().any(|(major, minor)| server.since(*major, *minor) && server.before(*major, minor + 1))
}

/// The types of an API in a server. Only complete if `is_complete`.
pub(super) fn of_server(api: Api, server: &ServerVersion) -> impl Iterator<Item = &'static ProviderKind> {
    KINDS.iter().filter(move |kind| kind.api == api && kind.exists(server))
}

/// A provider type of a package: the API, the type, and the keys that its configuration has in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageType {
    pub api: &'static str,
    pub type_: String,
    /// Keys that the spec must set.
    pub required: Vec<&'static str>,
    /// Keys that are always written.
    pub written: Vec<&'static str>,
}

/// The types that the table has for a version of the package, for comparison with that package.
pub fn package_types(version: &str) -> Vec<PackageType> {
    let server = ServerVersion::of(version);
    let kinds = KINDS.iter().filter(|kind| kind.exists(&server));
    kinds
        .map(|kind| PackageType {
            api: kind.api.key,
            type_: kind.type_(),
            required: kind.needs.to_vec(),
            written: [
                kind.namespace.map(|_| "persistence"),
                kind.file.map(|_| "db_path"),
                (kind.type_() == MILVUS).then_some("token"),
            ]
            .into_iter()
            .flatten()
            .collect(),
        })
        .collect()
}

/// Its key `token` is required, but may be null.
pub(super) const MILVUS: &str = "remote::milvus";

impl ProviderKind {
    pub fn type_(&self) -> String {
        format!("{}::{}", self.prefix, self.name)
    }

    /// Three providers of servers before 0.4 read `url`.
    pub fn endpoint(&self, server: &ServerVersion) -> Option<&'static str> {
        match self.name {
            "vllm" | "ollama" | "tgi" if server.before(0, 4) => Some("url"),
            _ => self.endpoint,
        }
    }

    fn exists(&self, server: &ServerVersion) -> bool {
        self.since.is_none_or(|(major, minor)| server.since(major, minor))
            && self.until.is_none_or(|(major, minor)| server.before(major, minor))
    }

    const fn since(mut self, major: u32, minor: u32) -> Self {
        self.since = Some((major, minor));
        self
    }

    const fn until(mut self, major: u32, minor: u32) -> Self {
        self.until = Some((major, minor));
        self
    }

    const fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    const fn stores(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    const fn needs(mut self, keys: &'static [&'static str]) -> Self {
        self.needs = keys;
        self
    }

    const fn file(mut self, file: &'static str) -> Self {
        self.file = Some(file);
        self
    }
}

const fn remote(
    api: Api,
    name: &'static str,
    endpoint: Option<&'static str>,
    secret: Option<&'static str>,
) -> ProviderKind {
    ProviderKind {
        api,
        name,
        prefix: "remote",
        endpoint,
        secret,
        namespace: None,
        file: None,
        needs: &[],
        exact: false,
        since: None,
        until: None,
    }
}

const fn inline(api: Api, name: &'static str) -> ProviderKind {
    ProviderKind { prefix: "inline", ..remote(api, name, None, None) }
}

const BASE_URL: Option<&str> = Some("base_url");
const URL: Option<&str> = Some("url");
const API_KEY: Option<&str> = Some("api_key");
const API_TOKEN: Option<&str> = Some("api_token");

/// Remote kinds precede inline kinds of the same name: a bare name means the remote one if there is one.
const KINDS: [ProviderKind; 58] = [
    remote(INFERENCE, "vllm", BASE_URL, API_TOKEN),
    remote(INFERENCE, "ollama", BASE_URL, None),
    remote(INFERENCE, "tgi", BASE_URL, None).until(0, 7),
    remote(INFERENCE, "hf::serverless", None, API_TOKEN).needs(&["huggingface_repo"]).until(0, 7),
    remote(INFERENCE, "hf::endpoint", None, API_TOKEN).needs(&["endpoint_name"]).until(0, 7),
    remote(INFERENCE, "openai", BASE_URL, API_KEY),
    remote(INFERENCE, "fireworks", BASE_URL, API_KEY),
    remote(INFERENCE, "together", BASE_URL, API_KEY),
    remote(INFERENCE, "groq", BASE_URL, API_KEY),
    remote(INFERENCE, "cerebras", BASE_URL, API_KEY),
    remote(INFERENCE, "sambanova", BASE_URL, API_KEY),
    remote(INFERENCE, "nvidia", BASE_URL, API_KEY),
    remote(INFERENCE, "llama-cpp-server", BASE_URL, API_KEY).since(0, 6),
    remote(INFERENCE, "llama-openai-compat", BASE_URL, API_KEY),
    remote(INFERENCE, "passthrough", BASE_URL, API_KEY),
    remote(INFERENCE, "azure", BASE_URL, API_KEY),
    remote(INFERENCE, "watsonx", BASE_URL, API_KEY),
    remote(INFERENCE, "anthropic", None, API_KEY),
    remote(INFERENCE, "gemini", None, API_KEY),
    remote(INFERENCE, "databricks", BASE_URL, API_TOKEN),
    remote(INFERENCE, "runpod", BASE_URL, API_TOKEN),
    remote(INFERENCE, "bedrock", None, API_KEY),
    remote(INFERENCE, "vertexai", None, Some("access_token")).needs(&["project"]),
    remote(INFERENCE, "oci", None, None),
    inline(INFERENCE, "sentence-transformers"),
    inline(INFERENCE, "transformers").since(0, 7),
    inline(INFERENCE, "meta-reference").until(0, 6),
    remote(VECTOR_IO, "chromadb", URL, None).stores("vector_io::chroma_remote").needs(&["url"]),
    remote(VECTOR_IO, "qdrant", URL, API_KEY).stores("vector_io::qdrant_remote"),
    remote(VECTOR_IO, "milvus", Some("uri"), Some("token")).stores("vector_io::milvus").needs(&["uri"]).exact(),
    remote(VECTOR_IO, "weaviate", Some("weaviate_cluster_url"), Some("weaviate_api_key")).stores("vector_io::weaviate"),
    remote(VECTOR_IO, "elasticsearch", Some("elasticsearch_url"), Some("elasticsearch_api_key"))
        .stores("vector_io::elasticsearch")
        .since(0, 6),
    remote(VECTOR_IO, "infinispan", URL, Some("password")).stores("vector_io::infinispan").since(0, 7),
    remote(VECTOR_IO, "oci", None, Some("password"))
        .stores("vector_io::oci26ai")
        .needs(&["conn_str", "user", "password", "tnsnames_loc", "ewallet_pem_loc", "ewallet_password"])
        .since(0, 6),
    remote(VECTOR_IO, "pgvector", None, Some("password")).stores("vector_io::pgvector"),
    inline(VECTOR_IO, "faiss").stores("vector_io::faiss"),
    // Two more names of faiss.
    inline(VECTOR_IO, "builtin").stores("vector_io::faiss").since(0, 7),
    inline(VECTOR_IO, "meta-reference").stores("vector_io::faiss").until(0, 7),
    inline(VECTOR_IO, "sqlite-vec").stores("vector_io::sqlite_vec").file("sqlite_vec.db"),
    inline(VECTOR_IO, "sqlite_vec").stores("vector_io::sqlite_vec").file("sqlite_vec.db"),
    inline(VECTOR_IO, "milvus").stores("vector_io::milvus").file("milvus.db"),
    inline(VECTOR_IO, "chromadb").stores("vector_io::chroma").file("chroma"),
    inline(VECTOR_IO, "qdrant").stores("vector_io::qdrant").needs(&["path"]),
    remote(TOOL_RUNTIME, "brave-search", None, API_KEY),
    remote(TOOL_RUNTIME, "tavily-search", None, API_KEY),
    remote(TOOL_RUNTIME, "bing-search", None, API_KEY),
    remote(TOOL_RUNTIME, "wolfram-alpha", None, API_KEY),
    remote(TOOL_RUNTIME, "model-context-protocol", None, None),
    inline(TOOL_RUNTIME, "rag-runtime").until(0, 7),
    inline(TOOL_RUNTIME, "file-search").since(0, 7),
    remote(SAFETY, "sambanova", URL, API_KEY),
    remote(SAFETY, "passthrough", BASE_URL, API_KEY).needs(&["base_url"]).exact().since(0, 6),
    remote(SAFETY, "nvidia", Some("guardrails_service_url"), None),
    remote(SAFETY, "bedrock", None, None),
    inline(SAFETY, "llama-guard"),
    inline(SAFETY, "prompt-guard"),
    inline(SAFETY, "code-scanner"),
    inline(TELEMETRY, "meta-reference").until(0, 3),
];

/// The prefix and the name of a type. None: a bare name.
pub(super) fn split(type_: &str) -> Option<(&str, &str)> {
    let (prefix, name) = type_.split_once("::")?;
    // The names of some types have such a separator of their own.
    Some(if ["remote", "inline"].contains(&prefix) { (prefix, name) } else { ("", type_) })
}

/// The APIs that have a type of this name in a server.
pub(super) fn apis_with(name: &str, server: &ServerVersion) -> impl Iterator<Item = Api> {
    let apis = [INFERENCE, SAFETY, VECTOR_IO, TOOL_RUNTIME].into_iter();
    apis.filter(move |api| of_server(*api, server).any(|kind| kind.name == name))
}

/// Finds a kind by its bare name or its type (`inline::faiss`).
pub(super) fn find(api: Api, provider: &str) -> Option<&'static ProviderKind> {
    let typed = provider.contains("::");
    let named = |kind: &ProviderKind| if typed { kind.type_() == provider } else { kind.name == provider };
    KINDS.iter().find(|kind| kind.api == api && named(kind))
}
