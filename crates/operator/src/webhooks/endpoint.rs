//! The Service or URL of the webhook: names for its certificate, and which client configurations point to it.

use http::Uri;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::WebhookClientConfig;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub namespace: String,
    pub service: String,
    /// `https://host:port`, without a path.
    pub url: Option<String>,
}

impl Reach {
    /// Subject alternative names of the certificate.
    pub fn names(&self) -> Vec<String> {
        let service = format!("{}.{}.svc", self.service, self.namespace);
        let whole = format!("{service}.cluster.local");
        let host = self.url.as_ref().and_then(|url| host(url));
        [service, whole].into_iter().chain(host).collect()
    }

    /// Whether `client` sends its reviews to this operator. Only then may the operator change it.
    pub fn is_named_by(&self, client: &WebhookClientConfig) -> bool {
        if let Some(service) = &client.service {
            return service.name == self.service && service.namespace == self.namespace;
        }
        let after =
            |given: &String| self.url.as_ref().and_then(|url| given.strip_prefix(url.as_str()).map(str::to_owned));
        client.url.as_ref().and_then(after).is_some_and(|path| path.is_empty() || path.starts_with('/'))
    }
}

/// The host of a URL, without the brackets of an IPv6 address.
fn host(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    uri.host().map(|host| host.trim_matches(['[', ']']).to_owned())
}

/// Parses the URL of this operator: `https://host` or `https://host:port`.
pub fn url(given: &str) -> Result<String, String> {
    let uri: Result<Uri, _> = given.parse();
    let fits = |uri: &Uri| {
        uri.scheme_str() == Some("https") && host(given).is_some() && uri.path() == "/" && uri.query().is_none()
    };
    match uri {
        Ok(uri) if fits(&uri) => Ok(given.trim_end_matches('/').to_owned()),
        _ => {
            Err("give the address under which API servers reach this process, such as https://127.0.0.1:9443"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ServiceReference;

    use super::*;

    fn reach(url: Option<&str>) -> Reach {
        Reach { namespace: "here".into(), service: "webhook".into(), url: url.map(str::to_owned) }
    }

    fn by_service(namespace: &str, name: &str) -> WebhookClientConfig {
        let service = ServiceReference { namespace: namespace.into(), name: name.into(), ..Default::default() };
        WebhookClientConfig { service: Some(service), ..Default::default() }
    }

    #[test]
    fn client_matches_own_service_or_url_only() {
        let by_url = |url: &str| WebhookClientConfig { url: Some(url.into()), ..Default::default() };
        let outside = reach(Some("https://127.0.0.1:9443"));
        for (reach, client, expected) in [
            (reach(None), by_service("here", "webhook"), true),
            (reach(None), by_service("there", "webhook"), false),
            (reach(None), by_service("here", "other-webhook"), false),
            (reach(None), by_url("https://127.0.0.1:9443/convert"), false),
            (outside.clone(), by_service("here", "webhook"), true),
            (outside.clone(), by_url("https://127.0.0.1:9443/convert"), true),
            (outside.clone(), by_url("https://127.0.0.1:9443"), true),
            (outside.clone(), by_url("https://127.0.0.1:94431/convert"), false),
            (outside.clone(), by_url("https://127.0.0.2:9443/convert"), false),
            (outside, WebhookClientConfig::default(), false),
        ] {
            assert_eq!(reach.is_named_by(&client), expected, "{reach:?} {client:?}");
        }
    }

    #[test]
    fn certificate_names_service_and_url_host() {
        assert_eq!(reach(None).names(), ["webhook.here.svc", "webhook.here.svc.cluster.local"]);
        for (url, host) in [("https://127.0.0.1:1", "127.0.0.1"), ("https://[::1]:1", "::1"), ("https://a.b", "a.b")] {
            assert_eq!(reach(Some(url)).names()[2], host);
        }
    }

    #[test]
    fn url_requires_host_without_path() {
        assert_eq!(url("https://127.0.0.1:9443/").unwrap(), "https://127.0.0.1:9443");
        for wrong in ["", "127.0.0.1:9443", "http://127.0.0.1:9443", "https://a/convert", "https://", "https://a?b"] {
            assert!(url(wrong).unwrap_err().starts_with("give the address under which"), "{wrong}");
        }
    }
}
