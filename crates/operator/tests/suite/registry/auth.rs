//! Authentication at registries, and which hosts receive credentials.

use serde_json::json;
use steersman::llamastack::oci::registry::RegistryError;
use steersman_plan::oci::{Credentials, TYPE_DOCKERCONFIGJSON};

use super::fake::{FakeRegistry, HOST, RequiredAuth, digest, gzip, tar};
use super::{config, credentials, distro, in_label};

#[tokio::test]
async fn pull_secret_authenticates_by_token_or_password() {
    for required_auth in [RequiredAuth::Token, RequiredAuth::Password] {
        let served = FakeRegistry::start().await;
        served.push("a/b", "1", in_label("private"), &[]);
        served.require_auth(required_auth, "puller", "secret-password");
        let image = format!("{HOST}/a/b:1");
        let registry = served.registry();
        let labelled = registry.labelled(&image, &credentials(HOST, "puller", "secret-password")).await.unwrap();
        assert_eq!(distro(&labelled), "private");
        let requests = served.take_requests();
        if required_auth == RequiredAuth::Token {
            let token = "GET /token?service=registry%2C+of+a+test&scope=repository%3Aa%2Fb%3Apull";
            assert_eq!(requests.iter().filter(|request| *request == token).count(), 1, "{requests:?}");
        }

        let error = registry.labelled(&image, &credentials(HOST, "puller", "wrong")).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "registry registry.test rejects the credentials of the pull secrets for a/b (HTTP 401); update the Secret \
             in imagePullSecrets of the server's service account"
        );
        // The cache does not hand out labels to a caller without credentials.
        let error = registry.labelled(&image, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, RegistryError::NoCredentials { code: 401, .. }), "{error}");
        assert!(error.to_string().contains("add a Secret of type kubernetes.io/dockerconfigjson"), "{error}");
        // Credentials of another host are not sent.
        served.take_requests();
        registry.labelled(&image, &credentials("other.test", "puller", "secret-password")).await.unwrap_err();
        assert!(!served.state.lock().unwrap().authorized[0]);
    }
}

#[tokio::test]
async fn another_registry_cannot_read_cached_labels() {
    let (private, evil) = (FakeRegistry::start().await, FakeRegistry::start().await);
    let digest = private.push("a/b", "1", in_label("private"), &[]);
    // The second host is an attacker's registry that knows nothing but the digest.
    let mut settings = private.settings();
    settings.elsewhere.insert("evil.test".to_owned(), format!("http://{}", evil.address).parse().unwrap());
    let http = steersman_runtime::http::Http::new(settings).unwrap();
    let registry = steersman::llamastack::oci::registry::Registry::new(http, std::time::Duration::from_secs(20));
    registry.labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap();
    evil.push("a/b", &digest, in_label("evil"), &[]);
    let error = registry.labelled(&format!("evil.test/a/b@{digest}"), &Credentials::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("its content does not match its digest"), "{error}");
}

#[tokio::test]
async fn logins_are_tried_in_order() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("private"), &[]);
    served.require_auth(RequiredAuth::Token, "puller", "secret-password");
    let mut many = credentials(&format!("{HOST}/a"), "old", "old-password");
    let right = super::docker_config(HOST, "puller", "secret-password");
    many.add("second", TYPE_DOCKERCONFIGJSON, &right).unwrap();
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &many).await.unwrap();
    assert_eq!(distro(&labelled), "private");
}

#[tokio::test]
async fn identity_tokens_are_exchanged_registry_tokens_are_sent() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("private"), &[]);
    served.require_auth(RequiredAuth::Token, "nobody", "identity");
    for auth in [json!({ "identitytoken": "identity" }), json!({ "registrytoken": super::fake::TOKEN })] {
        let text = json!({ "auths": { HOST: auth } }).to_string();
        let data = [(".dockerconfigjson".to_owned(), k8s_openapi::ByteString(text.into_bytes()))].into();
        let mut credentials = Credentials::default();
        credentials.add("pull", TYPE_DOCKERCONFIGJSON, &data).unwrap();
        let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &credentials).await.unwrap();
        assert_eq!(distro(&labelled), "private");
    }
}

#[tokio::test]
async fn redirected_store_receives_no_credentials() {
    let served = FakeRegistry::start().await;
    let layer = gzip(&tar(&[("config.yaml", config("stored").as_bytes())]));
    let labels = json!({ "io.llamastack.config.layer": digest(&layer), "io.llamastack.config.path": "config.yaml" });
    served.push("a/b", "1", labels, &[layer]);
    served.require_auth(RequiredAuth::Token, "puller", "secret-password");
    served.change(|state| state.redirects_blobs = true);
    let puller = credentials(HOST, "puller", "secret-password");
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &puller).await.unwrap();
    assert_eq!(distro(&labelled), "stored");
    let state = served.state.lock().unwrap();
    let stored: Vec<bool> = state
        .requests
        .iter()
        .zip(&state.authorized)
        .filter(|(request, _)| request.contains("/stored/"))
        .map(|(_, authorized)| *authorized)
        .collect();
    assert_eq!(stored, [false, false]);
}

#[tokio::test]
async fn realm_of_another_domain_receives_no_credentials() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", in_label("private"), &[]);
    served.require_auth(RequiredAuth::Token, "puller", "secret-password");
    // The other domain leads to the same server, which would accept the credentials.
    served.change(|state| state.realm = "https://store.test/token".to_owned());
    let puller = credentials(HOST, "puller", "secret-password");
    let error = served.registry().labelled(&format!("{HOST}/a/b:1"), &puller).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "registry registry.test names the token service store.test, which is in another domain, so that the credentials of the \
         pull secrets are not sent to it; use a registry with a token service in its own domain, or remove the credentials for \
         registry.test from the pull secrets if the image is public"
    );
    assert!(served.take_requests().iter().all(|request| !request.contains("/token")));
}
