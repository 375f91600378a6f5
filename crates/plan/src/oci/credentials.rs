//! The credentials of pull secrets, tried in the order that kubelets use.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use serde::Deserialize;
use steersman_api::meta::Sensitive;

use super::ImageReference;
use super::reference::{registry_name, split_port};

pub const TYPE_DOCKERCONFIGJSON: &str = "kubernetes.io/dockerconfigjson";
pub const TYPE_DOCKERCFG: &str = "kubernetes.io/dockercfg";

/// A way to authenticate to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    Password {
        user: Sensitive<String>,
        password: Sensitive<String>,
    },
    /// Refresh token, exchanged for a bearer token at the address that the registry names.
    Identity(Sensitive<String>),
    /// Bearer token, sent to the registry as it is.
    Token(Sensitive<String>),
}

/// The logins of any number of pull secrets. The default has none, for anonymous pulls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    entries: Vec<CredentialEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CredentialEntry {
    /// Host, port and path for which the login is valid.
    scope: String,
    login: Login,
}

/// Why a Secret cannot be used for pulling. The messages quote nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPullSecret {
    #[error(
        "Secret {name:?} has the type {given:?}; a pull secret has {TYPE_DOCKERCONFIGJSON}: create it with `kubectl create \
         secret docker-registry`"
    )]
    OtherType { name: String, given: String },
    #[error("Secret {name:?} has no key {key:?}; create it with `kubectl create secret docker-registry`")]
    NoKey { name: String, key: &'static str },
    #[error(
        "key {key:?} of Secret {name:?} is not a Docker configuration; create it with `kubectl create secret docker-registry`"
    )]
    Unreadable { name: String, key: &'static str },
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Credentials {
    pub fn add(&mut self, name: &str, type_: &str, data: &BTreeMap<String, ByteString>) -> Result<(), BadPullSecret> {
        let key = match type_ {
            TYPE_DOCKERCONFIGJSON => ".dockerconfigjson",
            TYPE_DOCKERCFG => ".dockercfg",
            other => return Err(BadPullSecret::OtherType { name: name.to_owned(), given: other.to_owned() }),
        };
        let text = data.get(key).ok_or_else(|| BadPullSecret::NoKey { name: name.to_owned(), key })?;
        let unreadable = || BadPullSecret::Unreadable { name: name.to_owned(), key };
        let auths: BTreeMap<String, Auth> = if type_ == TYPE_DOCKERCFG {
            serde_json::from_slice(&text.0).map_err(|_| unreadable())?
        } else {
            serde_json::from_slice(&text.0).map(|config: DockerConfig| config.auths).map_err(|_| unreadable())?
        };
        let mut found = Vec::new();
        for (scope, auth) in auths {
            if let Some(login) = auth.login().map_err(|Unreadable| unreadable())? {
                found.push(CredentialEntry { scope: scope_of(&scope), login });
            }
        }
        self.entries.extend(found);
        // The most specific scope comes first, as with kubelets; equal scopes keep the order of the Secrets.
        self.entries.sort_by(|a, b| b.scope.cmp(&a.scope));
        Ok(())
    }

    /// The logins for an image, the best first. Empty: pull anonymously.
    pub fn logins(&self, image: &ImageReference) -> Vec<&Login> {
        self.entries.iter().filter(|entry| covers(&entry.scope, image)).map(|entry| &entry.login).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

struct Unreadable;

impl Auth {
    /// The login of an entry. None: the entry is empty, as with a credential helper.
    fn login(self) -> Result<Option<Login>, Unreadable> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = given(self.registrytoken) {
            return Ok(Some(Login::Token(Sensitive::new(token))));
        }
        if let Some(token) = given(self.identitytoken) {
            return Ok(Some(Login::Identity(Sensitive::new(token))));
        }
        let (user, password) = match given(self.auth) {
            Some(auth) => {
                let text = STANDARD.decode(auth.trim()).map_err(|_| Unreadable)?;
                let text = String::from_utf8(text).map_err(|_| Unreadable)?;
                let (user, password) = text.split_once(':').ok_or(Unreadable)?;
                // Old versions of Docker padded the text with zeros.
                (user.to_owned(), password.trim_end_matches('\0').to_owned())
            }
            None => match (given(self.username), self.password) {
                (Some(user), Some(password)) => (user, password),
                _ => return Ok(None),
            },
        };
        Ok(Some(Login::Password { user: Sensitive::new(user), password: Sensitive::new(password) }))
    }
}

/// The key of an entry without scheme, API version and trailing slash.
fn scope_of(key: &str) -> String {
    let bare = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let path = path.trim_matches('/');
    let path = match path.split_once('/') {
        Some(("v1" | "v2", rest)) => rest,
        None if path == "v1" || path == "v2" => "",
        _ => path,
    };
    let host = registry_name(host);
    if path.is_empty() { host } else { format!("{host}/{path}") }
}

/// Whether a scope covers an image. Parts of the host may be patterns, the port must be equal or absent in both, and
/// the path is a prefix of the repository.
fn covers(scope: &str, image: &ImageReference) -> bool {
    let (host, path) = scope.split_once('/').unwrap_or((scope, ""));
    let (name, port) = split_port(host);
    let (wanted, wanted_port) = split_port(&image.registry);
    let (parts, wanted): (Vec<&str>, Vec<&str>) = (name.split('.').collect(), wanted.split('.').collect());
    port == wanted_port
        && parts.len() == wanted.len()
        && parts.iter().zip(wanted).all(|(pattern, part)| fits(pattern.as_bytes(), part.as_bytes()))
        && image.repository.starts_with(path)
}

/// Matches `*` with any number of characters and `?` with one.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    // Backtracks to the last star only, without recursion, so that no pattern is slow.
    let (mut at, mut star, mut seen) = (0, None, 0);
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, seen));
                at += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == text[seen] => (at, seen) = (at + 1, seen + 1),
            _ => match star {
                Some((after, from)) => {
                    (at, seen) = (after, from + 1);
                    star = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&left| left == b'*')
}
