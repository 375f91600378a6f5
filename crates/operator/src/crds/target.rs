//! Builds, compares and describes the `clientConfig` by which API servers reach the operator.

use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{ServiceReference, WebhookClientConfig};

use crate::args::ConverterArgs;
use crate::crds::WEBHOOK_SERVICE;
use crate::installation;

pub(crate) const PATH: &str = "/convert";
const PORT: i32 = 443;
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("cannot read the file {} of --webhook-ca: {cause}", path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    #[error("the file {} of --webhook-ca has no certificate; give a PEM file with a line {CERTIFICATE}", path.display())]
    NoCertificate { path: PathBuf },
}

/// The values of the `--webhook-*` flags. A missing part is taken from the live object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetFlags {
    /// Never with a bundle.
    pub target: Option<WebhookClientConfig>,
    pub bundle: Option<ByteString>,
}

impl TargetFlags {
    pub fn read(args: &ConverterArgs) -> Result<Self, TargetError> {
        let target = match (&args.url, &args.namespace, &args.service) {
            (Some(url), _, _) => Some(by_url(url)),
            (None, None, None) => None,
            (None, namespace, service) => Some(by_service(
                namespace.as_deref().unwrap_or(installation::NAMESPACE),
                service.as_deref().unwrap_or(WEBHOOK_SERVICE),
            )),
        };
        Ok(Self { target, bundle: args.ca.as_deref().map(bundle).transpose()? })
    }

    /// The `clientConfig` without a live object.
    pub fn or_default(&self) -> WebhookClientConfig {
        let target = self.target.clone().unwrap_or_else(default);
        WebhookClientConfig { ca_bundle: self.bundle.clone(), ..target }
    }
}

/// The Service of the shipped manifests.
pub(super) fn default() -> WebhookClientConfig {
    by_service(installation::NAMESPACE, WEBHOOK_SERVICE)
}

/// A URL without a path is that of the process, as in `steersman run --webhook-url`.
fn by_url(text: &str) -> WebhookClientConfig {
    let host = text.trim_start_matches("https://").trim_end_matches('/');
    let url = if host.contains('/') { text.to_owned() } else { format!("https://{host}{PATH}") };
    WebhookClientConfig { url: Some(url), ..WebhookClientConfig::default() }
}

fn by_service(namespace: &str, name: &str) -> WebhookClientConfig {
    let service = ServiceReference {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        path: Some(PATH.to_owned()),
        port: Some(PORT),
    };
    WebhookClientConfig { service: Some(service), ..WebhookClientConfig::default() }
}

/// Reads and checks the bundle: the API server would accept any bytes and fail at the first conversion.
fn bundle(path: &Path) -> Result<ByteString, TargetError> {
    let read = std::fs::read(path).map_err(|cause| TargetError::Unreadable { path: path.to_owned(), cause })?;
    if !String::from_utf8_lossy(&read).lines().any(|line| line.trim() == CERTIFICATE) {
        return Err(TargetError::NoCertificate { path: path.to_owned() });
    }
    Ok(ByteString(read))
}

/// Whether both name the same server and path. The bundle does not count.
pub(crate) fn same(one: &WebhookClientConfig, other: &WebhookClientConfig) -> bool {
    let plain = |client: &WebhookClientConfig| {
        let service = client.service.clone().map(|service| ServiceReference {
            port: Some(service.port.unwrap_or(PORT)),
            path: Some(service.path.unwrap_or_else(|| "/".to_owned())),
            ..service
        });
        (service, client.url.clone())
    };
    plain(one) == plain(other)
}

/// The server as messages name it.
pub(crate) fn describe(client: &WebhookClientConfig) -> String {
    match (&client.service, &client.url) {
        (Some(service), _) => format!("Service {}/{}", service.namespace, service.name),
        (None, Some(url)) => url.clone(),
        (None, None) => "no server".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(url: Option<&str>, namespace: Option<&str>, service: Option<&str>) -> ConverterArgs {
        let owned = |word: Option<&str>| word.map(str::to_owned);
        ConverterArgs { url: owned(url), namespace: owned(namespace), service: owned(service), ca: None }
    }

    #[test]
    fn flags_name_service_or_url_with_defaults() {
        let server = |args: &ConverterArgs| TargetFlags::read(args).unwrap().target.map(|client| describe(&client));
        assert_eq!(server(&args(None, None, None)), None);
        assert_eq!(server(&args(None, Some("models"), None)).as_deref(), Some("Service models/steersman-webhook"));
        assert_eq!(server(&args(None, None, Some("own"))).as_deref(), Some("Service steersman-system/own"));
        for url in ["https://10.0.0.1:9443/convert", "https://10.0.0.1:9443", "https://10.0.0.1:9443/"] {
            assert_eq!(server(&args(Some(url), None, None)).as_deref(), Some("https://10.0.0.1:9443/convert"));
        }
        assert_eq!(server(&args(Some("https://a/b"), None, None)).as_deref(), Some("https://a/b"));
    }

    #[test]
    fn invalid_bundle_is_refused_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let read = || TargetFlags::read(&ConverterArgs { ca: Some(path.clone()), ..args(None, None, None) });
        assert!(matches!(read(), Err(TargetError::Unreadable { .. })));
        std::fs::write(&path, "not a certificate").unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.contains("ca.pem of --webhook-ca has no certificate"), "{error}");
        std::fs::write(&path, format!("{CERTIFICATE}\nAA==\n")).unwrap();
        assert!(read().unwrap().bundle.is_some());
    }

    #[test]
    fn comparison_ignores_defaults_and_bundle() {
        let full = default();
        let mut filled_in = full.clone();
        filled_in.ca_bundle = Some(ByteString(vec![1]));
        filled_in.service.as_mut().unwrap().port = None;
        assert!(same(&full, &filled_in));
        filled_in.service.as_mut().unwrap().path = Some("/other".into());
        assert!(!same(&full, &filled_in));
        let url = WebhookClientConfig { url: Some("https://a/b".into()), ..WebhookClientConfig::default() };
        assert!(!same(&full, &url));
    }
}
