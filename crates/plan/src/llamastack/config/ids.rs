//! Provider ids, and the names of the environment variables that carry their secrets.

use steersman_api::llamastack::v1alpha2::Provider;

const OPENING: &str = "${env.";

/// An explicit id, or the last part of the provider's name (`vllm` of `remote::vllm`).
pub(super) fn of(provider: &Provider) -> &str {
    match provider.id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => id,
        None => provider.provider.rsplit("::").next().unwrap_or_default(),
    }
}

/// An id in a file, after the server has substituted the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EffectiveId {
    pub id: String,
    /// The variable that must be set for the provider to exist.
    pub required_variable: Option<String>,
}

/// `${env.NAME:+id}` is `id` if NAME is set, `${env.NAME:=id}` is `id` unless NAME is set to another value.
pub(super) fn effective(written: &str) -> EffectiveId {
    let always = |id: &str| EffectiveId { id: id.to_owned(), required_variable: None };
    let Some(inner) = written.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix('}')) else {
        return always(written);
    };
    if let Some((variable, id)) = inner.split_once(":+") {
        return EffectiveId { id: id.to_owned(), required_variable: Some(variable.to_owned()) };
    }
    always(inner.split_once(":=").map_or(written, |(_, id)| id))
}

/// `LLSD_<PROVIDER_ID>_<FIELD>`.
pub(super) fn variable(id: &str, field: &str) -> String {
    format!("LLSD_{}_{}", upper(id), upper(field))
}

/// The server substitutes names of `A-Z`, `0-9` and `_` only: a dash becomes `_`, and so does each run of other
/// characters (`::`).
fn upper(text: &str) -> String {
    let mut upper = String::with_capacity(text.len());
    let mut in_run = false;
    for c in text.chars() {
        let kept = match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => Some(c.to_ascii_uppercase()),
            '-' => Some('_'),
            _ if in_run => None,
            _ => Some('_'),
        };
        in_run = !matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-');
        upper.extend(kept);
    }
    upper
}

/// The text that the server replaces by the value of a variable.
pub(super) fn placeholder(variable: &str) -> String {
    format!("{OPENING}{variable}}}")
}

/// The variables that the server does not start without: `${env.NAME}` with neither default nor condition.
pub(super) fn needed(text: &str) -> impl Iterator<Item = &str> {
    text.split(OPENING).skip(1).filter_map(|rest| {
        let name = &rest[..rest.find('}')?];
        let substituted = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        (!name.is_empty() && name.chars().all(substituted)).then_some(name)
    })
}
