//! Parses the authentication challenges and tokens of registries, and builds authorization headers.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderValue, Uri};
use serde::Deserialize;
use steersman_api::meta::Sensitive;

/// The rights that a token must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Pull,
    PullAndPush,
}

impl Access {
    fn actions(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::PullAndPush => "pull,push",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password with each request.
    Basic,
    /// A token from `realm`.
    Bearer { realm: Uri, service: Option<String> },
}

/// The challenge of a 401, or the reason why it is not supported.
pub fn challenge(headers: &HeaderMap) -> Result<Challenge, String> {
    let given: Vec<&str> = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    for text in &given {
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            let mut parameters = parameters(rest);
            let realm = parameters.get("realm").and_then(|realm| realm.parse::<Uri>().ok());
            let realm = realm.filter(|realm| realm.scheme().is_some() && realm.authority().is_some());
            let realm = realm.ok_or("Bearer without a valid realm")?;
            return Ok(Challenge::Bearer { realm, service: parameters.remove("service") });
        }
    }
    let basic = |text: &&str| text.split(' ').next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic"));
    match given.iter().any(basic) {
        true => Ok(Challenge::Basic),
        false => Err("neither Basic nor Bearer".to_owned()),
    }
}

/// Whether a realm may receive the credentials of a registry (host with port): it is the same host, or a host of the same
/// domain, as `auth.docker.io` for `registry-1.docker.io`. The last two labels count as the domain.
pub fn same_domain(realm: &Uri, registry: &str) -> bool {
    let registry: Option<Uri> = registry.parse().ok();
    let (Some(realm), Some(registry)) = (realm.host(), registry.as_ref().and_then(Uri::host)) else { return false };
    let (realm, registry) = (realm.to_ascii_lowercase(), registry.to_ascii_lowercase());
    realm == registry || domain(&realm).is_some_and(|of_realm| domain(&registry) == Some(of_realm))
}

/// The last two labels of a name. None: the host has one label, or is an address.
fn domain(host: &str) -> Option<&str> {
    let (rest, top) = host.trim_end_matches('.').rsplit_once('.')?;
    let is_name = !host.starts_with('[') && top.starts_with(|first: char| first.is_ascii_alphabetic());
    let start = rest.rfind('.').map_or(0, |dot| dot + 1);
    host.get(start..).filter(|_| is_name)
}

/// Pairs of the form `key="value"`, separated by commas; quoted values may contain commas.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text.trim();
    while let Some((key, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        rest = next.trim_start_matches([',', ' ']);
    }
    found
}

pub fn token_query(service: Option<&str>, repository: &str, access: Access) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(service) = service {
        query.append_pair("service", service);
    }
    query.append_pair("scope", &format!("repository:{repository}:{}", access.actions())).finish()
}

/// Form for a token for one repository, in exchange for an identity token.
pub fn identity_form(service: Option<&str>, repository: &str, access: Access, token: &Sensitive<String>) -> String {
    let mut form = form_urlencoded::Serializer::new(token_query(service, repository, access));
    form.append_pair("grant_type", "refresh_token").append_pair("client_id", "steersman");
    form.append_pair("refresh_token", token.reveal()).finish()
}

pub fn token(body: &[u8]) -> Option<Sensitive<String>> {
    #[derive(Deserialize)]
    struct Given {
        token: Option<String>,
        access_token: Option<String>,
    }
    let given: Given = serde_json::from_slice(body).ok()?;
    let filled = |token: Option<String>| token.filter(|token| !token.is_empty());
    filled(given.token).or_else(|| filled(given.access_token)).map(Sensitive::new)
}

/// A header that is marked as sensitive, so that no library logs it. None: the token has characters that a header cannot have.
pub fn bearer(token: &Sensitive<String>) -> Option<HeaderValue> {
    sensitive_header(&format!("Bearer {}", token.reveal()))
}

pub fn basic(user: &Sensitive<String>, password: &Sensitive<String>) -> Option<HeaderValue> {
    sensitive_header(&format!("Basic {}", STANDARD.encode(format!("{}:{}", user.reveal(), password.reveal()))))
}

fn sensitive_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenged(values: &[&'static str]) -> Result<Challenge, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        challenge(&headers)
    }

    #[test]
    fn token_is_preferred_and_unknown_schemes_refused() {
        let bearer = |service: Option<&str>| {
            Ok(Challenge::Bearer {
                realm: "https://a.example/token?x=1,2".parse().unwrap(),
                service: service.map(str::to_owned),
            })
        };
        let full =
            r#"Bearer realm="https://a.example/token?x=1,2",service="the, service",scope="repository:a:pull,push""#;
        assert_eq!(challenged(&[full]), bearer(Some("the, service")));
        assert_eq!(challenged(&["Basic realm=\"x\"", full]), bearer(Some("the, service")));
        assert_eq!(challenged(&["bearer scope=a, realm=\"https://a.example/token?x=1,2\""]), bearer(None));
        assert_eq!(challenged(&["basic realm=\"x\""]), Ok(Challenge::Basic));
        assert_eq!(challenged(&["Basic"]), Ok(Challenge::Basic));
        for wrong in [&[][..], &["Negotiate"], &["Bearer"], &["Bearer realm=\"/token\""]] {
            assert!(challenged(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn credentials_stay_in_the_registry_domain() {
        for (realm, registry, same) in [
            ("https://auth.docker.io/token", "registry-1.docker.io", true),
            ("https://gitlab.com/jwt/auth", "registry.gitlab.com", true),
            ("https://sso.redhat.com/auth", "registry.connect.redhat.com", true),
            ("https://Quay.io/v2/auth", "quay.io", true),
            ("https://quay.io:8443/v2/auth", "quay.io:443", true),
            ("https://10.0.0.7/token", "10.0.0.7:5000", true),
            ("https://registry/token", "registry:5000", true),
            ("https://quay.io.evil.example/token", "quay.io", false),
            ("https://evilquay.io/token", "quay.io", false),
            ("https://quay.io@evil.example/token", "quay.io", false),
            ("https://10.1.0.7/token", "10.0.0.7", false),
            ("https://evil/token", "registry", false),
            ("https://[fd00::1]/token", "[fd00::2]", false),
        ] {
            assert_eq!(same_domain(&realm.parse().unwrap(), registry), same, "{realm} for {registry}");
        }
    }

    #[test]
    fn token_query_names_needed_access() {
        let query = |access| token_query(Some("a b"), "team/app", access);
        assert_eq!(query(Access::Pull), "service=a+b&scope=repository%3Ateam%2Fapp%3Apull");
        assert_eq!(query(Access::PullAndPush), "service=a+b&scope=repository%3Ateam%2Fapp%3Apull%2Cpush");
    }

    #[test]
    fn token_is_read_from_either_field() {
        let read = |body: &str| token(body.as_bytes()).map(|token| token.reveal().clone());
        assert_eq!(read(r#"{"token":"a","access_token":"b"}"#).as_deref(), Some("a"));
        assert_eq!(read(r#"{"token":"","access_token":"b"}"#).as_deref(), Some("b"));
        assert_eq!(read(r#"{"token":""}"#), None);
        assert_eq!(read("<html>"), None);
    }
}
