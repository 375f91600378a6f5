//! The configuration keys that the server's own providers read, as of the packages 0.4 to 0.7. The server silently
//! ignores a wrong key. A provider that is not listed gets the keys of the specification.

use super::apis::{Api, INFERENCE, SAFETY, TELEMETRY, TOOL_RUNTIME, VECTOR_IO};
use super::version::ServerVersion;

pub(super) struct ProviderKind {
    pub api: Api,
    pub name: &'static str,
    /// `remote` or `inline`.
    prefix: &'static str,
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
}

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
const KINDS: [ProviderKind; 51] = [
    remote(INFERENCE, "vllm", BASE_URL, API_TOKEN),
    remote(INFERENCE, "ollama", BASE_URL, None),
    remote(INFERENCE, "tgi", BASE_URL, None),
    remote(INFERENCE, "openai", BASE_URL, API_KEY),
    remote(INFERENCE, "fireworks", BASE_URL, API_KEY),
    remote(INFERENCE, "together", BASE_URL, API_KEY),
    remote(INFERENCE, "groq", BASE_URL, API_KEY),
    remote(INFERENCE, "cerebras", BASE_URL, API_KEY),
    remote(INFERENCE, "sambanova", BASE_URL, API_KEY),
    remote(INFERENCE, "nvidia", BASE_URL, API_KEY),
    remote(INFERENCE, "llama-cpp-server", BASE_URL, API_KEY),
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
    inline(INFERENCE, "sentence-transformers"),
    inline(INFERENCE, "transformers"),
    inline(INFERENCE, "meta-reference"),
    remote(VECTOR_IO, "chromadb", URL, None).stores("vector_io::chroma_remote").needs(&["url"]),
    remote(VECTOR_IO, "qdrant", URL, API_KEY).stores("vector_io::qdrant_remote"),
    remote(VECTOR_IO, "milvus", Some("uri"), Some("token")).stores("vector_io::milvus").needs(&["uri"]).exact(),
    remote(VECTOR_IO, "weaviate", Some("weaviate_cluster_url"), Some("weaviate_api_key")).stores("vector_io::weaviate"),
    remote(VECTOR_IO, "elasticsearch", Some("elasticsearch_url"), Some("elasticsearch_api_key"))
        .stores("vector_io::elasticsearch"),
    remote(VECTOR_IO, "infinispan", URL, Some("password")).stores("vector_io::infinispan"),
    remote(VECTOR_IO, "pgvector", None, Some("password")).stores("vector_io::pgvector"),
    inline(VECTOR_IO, "faiss").stores("vector_io::faiss"),
    inline(VECTOR_IO, "sqlite-vec").stores("vector_io::sqlite_vec").file("sqlite_vec.db"),
    inline(VECTOR_IO, "milvus").stores("vector_io::milvus").file("milvus.db"),
    inline(VECTOR_IO, "chromadb").stores("vector_io::chroma").file("chroma"),
    inline(VECTOR_IO, "qdrant").stores("vector_io::qdrant").needs(&["path"]),
    remote(TOOL_RUNTIME, "brave-search", None, API_KEY),
    remote(TOOL_RUNTIME, "tavily-search", None, API_KEY),
    remote(TOOL_RUNTIME, "bing-search", None, API_KEY),
    remote(TOOL_RUNTIME, "wolfram-alpha", None, API_KEY),
    remote(TOOL_RUNTIME, "model-context-protocol", None, None),
    inline(TOOL_RUNTIME, "rag-runtime"),
    inline(TOOL_RUNTIME, "file-search"),
    remote(SAFETY, "sambanova", URL, API_KEY),
    remote(SAFETY, "passthrough", BASE_URL, API_KEY).needs(&["base_url"]).exact(),
    remote(SAFETY, "nvidia", Some("guardrails_service_url"), None),
    remote(SAFETY, "bedrock", None, None),
    inline(SAFETY, "llama-guard"),
    inline(SAFETY, "prompt-guard"),
    inline(SAFETY, "code-scanner"),
    inline(TELEMETRY, "meta-reference"),
];

/// Finds a kind by its bare name or its type (`inline::faiss`).
pub(super) fn find(api: Api, provider: &str) -> Option<&'static ProviderKind> {
    let typed = provider.contains("::");
    let named = |kind: &ProviderKind| if typed { kind.type_() == provider } else { kind.name == provider };
    KINDS.iter().find(|kind| kind.api == api && named(kind))
}
