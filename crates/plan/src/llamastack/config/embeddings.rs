//! Embedding models: their vector length, without which a server does not start, and the providers of those in a base.

use serde_json::Value;
use steersman_api::llamastack::v1alpha2::Model;
use steersman_reconcile::FieldPath;

use super::draft::{list, text};
use super::problem::reason;
use super::{FieldError, ids};

/// Field of a model in the spec. Upstream has none for it and cannot register such a model.
pub(super) const FIELD: &str = "embeddingDimension";

/// Known models by the last part of their name, in lower case.
const KNOWN: [(&str, u64); 21] = [
    ("all-minilm", 384),
    ("all-minilm-l6-v2", 384),
    ("all-minilm:l6-v2", 384),
    ("all-mpnet-base-v2", 768),
    ("bge-base-en-v1.5", 768),
    ("bge-large-en-v1.5", 1024),
    ("bge-m3", 1024),
    ("bge-small-en-v1.5", 384),
    ("e5-mistral-7b-instruct", 4096),
    ("granite-embedding-125m-english", 768),
    ("granite-embedding-30m-english", 384),
    ("mxbai-embed-large", 1024),
    ("nomic-embed-text", 768),
    ("nomic-embed-text-v1", 768),
    ("nomic-embed-text-v1.5", 768),
    ("qwen3-embedding-0.6b", 1024),
    ("qwen3-embedding-4b", 2560),
    ("qwen3-embedding-8b", 4096),
    ("text-embedding-3-large", 3072),
    ("text-embedding-3-small", 1536),
    ("text-embedding-ada-002", 1536),
];

pub(super) fn dimension(model: &Model, path: &FieldPath) -> Result<u64, FieldError> {
    let refuse = |path: FieldPath, message: &str| {
        let remedy = format!("Add {FIELD}, the length of its vectors, such as 768.");
        FieldError::new(path, reason::INVALID, message, remedy)
    };
    match model.unknown.get(FIELD) {
        Some(given) => given
            .as_u64()
            .filter(|length| *length > 0)
            .ok_or_else(|| refuse(path.field(FIELD), "it must be a whole number above 0")),
        None => known(&model.name).ok_or_else(|| {
            refuse(
                path.clone(),
                "the vector length of this embedding model is unknown, and the server does not start without it",
            )
        }),
    }
}

fn known(name: &str) -> Option<u64> {
    let last = name.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    KNOWN.iter().find(|(known, _)| *known == last).map(|(_, length)| *length)
}

/// A model of the base, other than a language model, that the provider with this id serves.
pub(super) fn model_of<'b>(base: &'b Value, provider: &str) -> Option<&'b str> {
    let serves = |of: &&Value| text(of, "provider_id").is_some_and(|id| ids::effective(id).id == provider);
    let defaults = base["vector_stores"].as_object().into_iter().flatten().map(|(_, value)| value);
    let registered =
        [&base["registered_resources"]["models"], &base["models"]].into_iter().flat_map(|at| list(Some(at)));
    let special = registered.filter(|model| text(model, "model_type").is_some_and(|type_| type_ != "llm"));
    defaults.chain(special).filter(serves).find_map(|model| text(model, "model_id"))
}
