//! Names: of providers, and of the variables that carry their secrets.
//! Comes in: what the user or the base wrote; goes out: the id that the server will see, and variable names that it can
//! substitute.

use steersman_api::llamastack::v1alpha2::Provider;

const OPENING: &str = "${env.";

/// An explicit id, or the last part of the provider's name (`vllm` of `remote::vllm`).
pub(super) fn of(provider: &Provider) -> &str {
    match provider.id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => id,
        None => provider.provider.rsplit("::").next().unwrap_or_default(),
    }
}

/// An id as it stands in a file, and what it will be once the server has put the environment in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub id: String,
    /// The variable that has to be set for it to be there at all.
    pub only_with: Option<String>,
}

/// `${env.NAME:+id}` is `id` where NAME is set, `${env.NAME:=id}` is `id` unless NAME says otherwise.
pub(super) fn known(written: &str) -> Known {
    let always = |id: &str| Known { id: id.to_owned(), only_with: None };
    let Some(inner) = written.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix('}')) else {
        return always(written);
    };
    if let Some((variable, id)) = inner.split_once(":+") {
        return Known { id: id.to_owned(), only_with: Some(variable.to_owned()) };
    }
    always(inner.split_once(":=").map_or(written, |(_, id)| id))
}

/// `LLSD_<PROVIDER_ID>_<FIELD>`.
pub(super) fn variable(id: &str, field: &str) -> String {
    format!("LLSD_{}_{}", upper(id), upper(field))
}

/// The server substitutes names of `A-Z`, `0-9` and `_` only, so every other character has to go: a dash becomes `_`, and
/// so does a run of others (`::`).
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

/// What the server replaces by the value of a variable.
pub(super) fn placeholder(variable: &str) -> String {
    format!("{OPENING}{variable}}}")
}

/// The variables without which the server does not start: `${env.NAME}` with neither default nor condition.
pub(super) fn needed(text: &str) -> impl Iterator<Item = &str> {
    text.split(OPENING).skip(1).filter_map(|rest| {
        let name = &rest[..rest.find('}')?];
        let substituted = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        (!name.is_empty() && name.chars().all(substituted)).then_some(name)
    })
}
