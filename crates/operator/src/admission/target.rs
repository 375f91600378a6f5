//! Where the reviews of a configuration go.
//! Comes in: where the operator is reached, as CRDs have it, or a webhook as it is; goes out: the `clientConfig` with the
//! path of this configuration, and words for it.

use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as crd;

use crate::admission::Configuration;

const CONVERT: &str = "/convert";
const PORT: i32 = 443;

/// The same server, asked for this configuration.
pub(super) fn at(client: &crd::WebhookClientConfig, configuration: Configuration) -> WebhookClientConfig {
    let path = configuration.path();
    let service = client.service.as_ref().map(|service| ServiceReference {
        namespace: service.namespace.clone(),
        name: service.name.clone(),
        path: Some(path.clone()),
        port: service.port,
    });
    let url = client.url.as_ref().map(|url| format!("{}{path}", url.strip_suffix(CONVERT).unwrap_or(url)));
    WebhookClientConfig { ca_bundle: client.ca_bundle.clone(), service, url }
}

/// Whether both are the same server and path, whatever certificate it is trusted by.
pub(super) fn same(one: &WebhookClientConfig, other: &WebhookClientConfig) -> bool {
    let plain = |client: &WebhookClientConfig| {
        let service = client.service.clone();
        let service = service.map(|service| ServiceReference { port: Some(service.port.unwrap_or(PORT)), ..service });
        (service, client.url.clone())
    };
    plain(one) == plain(other)
}

/// As it stands in a sentence.
pub(super) fn describe(client: &WebhookClientConfig) -> String {
    match (&client.service, &client.url) {
        (Some(service), _) => format!("Service {}/{}", service.namespace, service.name),
        (None, Some(url)) => url.clone(),
        (None, None) => "nobody".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use steersman_api::Family;

    use super::*;
    use crate::crds::Given;
    use crate::webhooks::admission::Route;

    fn of(route: Route, family: Family) -> Configuration {
        Configuration { route, family }
    }

    #[test]
    fn the_server_of_the_crds_is_asked_on_the_path_of_the_family() {
        let by_service = at(&Given::default().or_default(), of(Route::Validate, Family::Llsd));
        assert_eq!(describe(&by_service), "Service steersman-system/steersman-webhook");
        assert_eq!(by_service.service.unwrap().path.as_deref(), Some("/validate/llsd"));
        let by_url = |url: &str| crd::WebhookClientConfig { url: Some(url.into()), ..Default::default() };
        let asked = at(&by_url("https://10.0.0.1:9443/convert"), of(Route::Mutate, Family::Dgdr));
        assert_eq!(asked.url.as_deref(), Some("https://10.0.0.1:9443/mutate/dgdr"));
    }

    #[test]
    fn what_the_api_server_fills_in_and_the_bundle_make_no_difference() {
        let full = at(&Given::default().or_default(), of(Route::Validate, Family::Llsd));
        let mut live = full.clone();
        live.ca_bundle = Some(k8s_openapi::ByteString(vec![1]));
        live.service.as_mut().unwrap().port = None;
        assert!(same(&full, &live));
        live.service.as_mut().unwrap().path = Some("/other".into());
        assert!(!same(&full, &live));
    }
}
