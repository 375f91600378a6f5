//! Parses image references.

use std::fmt;

/// The registry of references without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Other names of that registry, and its real host.
const DEFAULT_REGISTRY_NAMES: [&str; 3] = [DEFAULT_REGISTRY, "index.docker.io", "registry-1.docker.io"];
const DEFAULT_REGISTRY_HOST: &str = "registry-1.docker.io";

const MAX_REPOSITORY_LENGTH: usize = 255;
const MAX_TAG_LENGTH: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// `host` or `host:port`. All names of the default registry become `docker.io`.
    pub registry: String,
    pub repository: String,
    /// `latest` if the reference has neither tag nor digest.
    pub tag: Option<String>,
    pub digest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an image reference: {why}; write it as registry/repository:tag or registry/repository@sha256:…"
)]
pub struct BadReference {
    pub text: String,
    pub why: &'static str,
}

impl ImageReference {
    pub fn parse(text: &str) -> Result<Self, BadReference> {
        parse(text).map_err(|why| BadReference { text: text.chars().take(MAX_REPOSITORY_LENGTH).collect(), why })
    }

    pub fn host(&self) -> &str {
        if self.registry == DEFAULT_REGISTRY { DEFAULT_REGISTRY_HOST } else { &self.registry }
    }

    pub fn version(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.registry, self.repository)?;
        match (&self.digest, &self.tag) {
            (Some(digest), _) => write!(out, "@{digest}"),
            (None, Some(tag)) => write!(out, ":{tag}"),
            (None, None) => Ok(()),
        }
    }
}

/// Whether a text is a digest that content can be verified with.
pub fn is_digest(text: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    text.strip_prefix("sha256:").is_some_and(|sum| sum.len() == 64 && sum.chars().all(hex))
}

/// The canonical name of a registry. Only capitals distinguish a host without a dot from a repository, so that it keeps
/// them.
pub(super) fn registry_name(written: &str) -> String {
    let name = written.to_ascii_lowercase();
    match name.as_str() {
        known if DEFAULT_REGISTRY_NAMES.contains(&known) => DEFAULT_REGISTRY.to_owned(),
        host if names_a_registry(host) => name,
        _ => written.to_owned(),
    }
}

fn parse(text: &str) -> Result<ImageReference, &'static str> {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) if is_digest(digest) => (rest, Some(digest.to_owned())),
        Some(_) => return Err("the part after @ is not a digest like sha256:<64 hex digits>"),
        None => (text, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(
            "the tag may have letters, digits, '_', '.' and '-', at most 128 of them, and starts with one of the first three",
        );
    }
    let (registry, repository) = match path.split_once('/') {
        Some((first, repository)) if names_a_registry(first) => (registry_name(first), repository.to_owned()),
        _ => (DEFAULT_REGISTRY.to_owned(), path.to_owned()),
    };
    if !is_host(&registry) {
        return Err("the part before the first slash is not a host or host:port");
    }
    let official = registry == DEFAULT_REGISTRY && !repository.contains('/');
    let repository = if official { format!("library/{repository}") } else { repository };
    if repository.len() > MAX_REPOSITORY_LENGTH || !repository.split('/').all(is_repository_part) {
        return Err(
            "the repository may have lower case letters, digits, and '.', '_', '-' between them, in parts divided by '/'",
        );
    }
    let tag = tag.map(str::to_owned).or_else(|| digest.is_none().then(|| "latest".to_owned()));
    Ok(ImageReference { registry, repository, tag, digest })
}

/// Follows container engines: `a/b` is a repository of the default registry, `a.b/c` and `localhost/c` are not.
fn names_a_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':', '[']) || first.chars().any(|c| c.is_ascii_uppercase())
}

/// Splits `host:port`. A colon inside brackets belongs to an IPv6 address.
pub(super) fn split_port(registry: &str) -> (&str, Option<&str>) {
    match registry.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (registry, None),
    }
}

fn is_host(registry: &str) -> bool {
    let (host, port) = split_port(registry);
    let name = |host: &str| {
        !host.is_empty()
            && host.split('.').all(|part| {
                !part.is_empty()
                    && !part.starts_with('-')
                    && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            })
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let known = address.map_or_else(|| name(host), |address| address.parse::<std::net::Ipv6Addr>().is_ok());
    known && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_repository_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || matches!(c, '.' | '_' | '-'))
}

fn is_tag(tag: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= MAX_TAG_LENGTH && tag.starts_with(plain) && tag.chars().all(|c| plain(c) || matches!(c, '.' | '-'))
}
