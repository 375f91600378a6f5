//! Failed connections to an API server: each failure is one sentence that says what to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use steersman::args::ClusterArgs;
use steersman::preflight::observe;
use steersman_runtime::client::connect;
use steersman_testkit::ports::ReservedPort;
use steersman_testkit::wait::TIMEOUT;

/// Request timeout of tests that wait until it expires. Long enough to connect first, even on a busy machine.
const SHORT_TIMEOUT: Duration = Duration::from_secs(5);

fn args(kubeconfig: PathBuf, context: Option<&str>, request_timeout: Duration) -> ClusterArgs {
    ClusterArgs { kubeconfig: Some(kubeconfig), context: context.map(str::to_owned), request_timeout }
}

fn kubeconfig_for(server: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: here, clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], \
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}, {{name: there, context: {{cluster: c, user: u}}}}], \
         users: [{{name: u, user: {{token: SECRET}}}}]}}"
    )
}

/// Runs a preflight against the kubeconfig and returns the sentence with which it fails.
fn failure(kubeconfig: &str, context: Option<&str>) -> String {
    failure_within(TIMEOUT, kubeconfig, context)
}

fn failure_within(limit: Duration, kubeconfig: &str, context: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, kubeconfig).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match connect(&args(path, context, limit).connect_options()).await {
            Err(error) => error.to_string(),
            Ok(server) => observe(&server, steersman::rbac::all_rights()).await.unwrap_err().to_string(),
        }
    })
}

/// Starts a server that calls `handle` for each connection until the test ends, and returns its address.
fn listen(handle: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().flatten().for_each(handle));
    address
}

fn serve_response(status: &'static str, body: &'static str) -> String {
    listen(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    })
}

#[test]
fn missing_kubeconfig_is_named() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error =
        runtime.block_on(connect(&args("/no/such/file".into(), None, TIMEOUT).connect_options())).err().unwrap();
    assert_eq!(error.to_string(), "cannot read the kubeconfig /no/such/file: No such file or directory (os error 2)");
}

#[test]
fn invalid_kubeconfig_is_located_not_quoted() {
    let error = failure("apiVersion: v1\nusers:\n- name: u\n  user: {token: \"SECRET}\n", None);
    assert!(error.starts_with("cannot use the kubeconfig: line 4 column"), "{error}");
    assert!(!error.contains("SECRET") && !error.contains('\n'), "{error}");
}

#[test]
fn unknown_context_lists_the_existing_ones() {
    let error = failure(&kubeconfig_for("https://127.0.0.1:1"), Some("elsewhere"));
    assert_eq!(error, "the kubeconfig has no context \"elsewhere\"; it has here, there");
    let error = failure("{apiVersion: v1, kind: Config}", None);
    assert_eq!(error, "the kubeconfig names no current context; pass --context NAME, one of: none");
}

#[test]
fn refused_connection_is_reported() {
    // The test reserves the port without listening on it.
    let port = ReservedPort::any_free().unwrap();
    let closed = format!("127.0.0.1:{}", port.number());
    let error = failure(&kubeconfig_for(&format!("http://{closed}")), None);
    let expected = format!(
        "the API server at http://{closed} refuses connections; check that it runs and that the kubeconfig has its address"
    );
    assert_eq!(error, expected);
}

#[test]
fn silent_server_times_out() {
    let connections = std::sync::Mutex::new(vec![]);
    let address = listen(move |stream| connections.lock().unwrap().push(stream));
    let error = failure_within(SHORT_TIMEOUT, &kubeconfig_for(&format!("http://{address}")), None);
    let expected = format!(
        "the API server at http://{address} did not answer the request within {} s; check the address and the network",
        SHORT_TIMEOUT.as_secs()
    );
    assert_eq!(error, expected);
}

#[test]
fn busy_server_is_not_retried_past_the_timeout() {
    let address = serve_response("503 Service Unavailable", "{}");
    let error = failure_within(SHORT_TIMEOUT, &kubeconfig_for(&format!("http://{address}")), None);
    assert!(error.contains(&format!("did not answer the request within {} s", SHORT_TIMEOUT.as_secs())), "{error}");
}

#[test]
fn refused_credentials_name_what_to_renew() {
    let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    let address = serve_response("401 Unauthorized", body);
    let error = failure(&kubeconfig_for(&format!("http://{address}")), None);
    let expected = format!(
        "the API server at http://{address} does not accept the credentials (401); renew the token or certificate in the \
         kubeconfig"
    );
    assert_eq!(error, expected);
}

#[test]
fn unexpected_response_is_quoted() {
    let body =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"what?","reason":"BadRequest","code":400}"#;
    let error = failure(&kubeconfig_for(&format!("http://{}", serve_response("400 Bad Request", body))), None);
    assert_eq!(error, "the API server answered 400: what?");
}

#[test]
fn certificate_of_unknown_ca_is_refused() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let address = listen(move |mut stream| {
        let mut session = rustls::ServerConnection::new(config.clone()).unwrap();
        // The client aborts the handshake, so reading fails.
        let _ = rustls::Stream::new(&mut session, &mut stream).read(&mut [0; 64]);
    });
    let error = failure(&kubeconfig_for(&format!("https://{address}")), None);
    assert!(
        error.starts_with(&format!("the certificate of the API server at https://{address} is not trusted (")),
        "{error}"
    );
    assert!(error.ends_with("); check certificate-authority-data in the kubeconfig"), "{error}");
}

/// A kubeconfig whose credentials come from this shell script.
fn kubeconfig_with_plugin(script: &str) -> String {
    let plugin = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [\"-c\", \"{script}\"], \
         interactiveMode: Never}}}}"
    );
    kubeconfig_for("https://127.0.0.1:1").replace("{token: SECRET}", &plugin)
}

#[test]
fn failing_credential_plugin_is_not_quoted() {
    let error = failure(&kubeconfig_with_plugin("echo SECRET; echo SECRET >&2; exit 1"), None);
    assert!(error.starts_with("cannot get the credentials of the kubeconfig"), "{error}");
    assert!(!error.contains("SECRET"), "{error}");
}

#[test]
fn hanging_credential_plugin_times_out() {
    // The plugin reads a pipe that this test keeps open, so it hangs until the test ends and leaves no process behind.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let holder = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, kubeconfig_with_plugin(&format!("exec cat {}", pipe.display()))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error =
        runtime.block_on(connect(&args(path, None, SHORT_TIMEOUT).connect_options())).err().unwrap().to_string();
    runtime.shutdown_background();
    drop(holder);
    let expected =
        format!("the credential plugin of the kubeconfig did not respond within {} s", SHORT_TIMEOUT.as_secs());
    assert_eq!(error, expected);
}
