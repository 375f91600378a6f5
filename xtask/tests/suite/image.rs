//! `cargo xtask image`: two builds give the same image, the operator runs in it with nothing else, and registries accept it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use sha2::{Digest, Sha256};
use steersman_runtime::http::{Http, HttpRequest, HttpSettings};
use steersman_testkit::binaries::REGISTRY;
use steersman_testkit::ports::ReservedPort;
use steersman_testkit::process::Process;
use steersman_testkit::prometheus::ClientAuth;
use steersman_testkit::{PrometheusServer, skip};

use crate::support::{eventually, xtask};

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A small program with shared libraries, for tests that are not about the operator.
const OTHER_PROGRAM: &str = "/bin/true";

/// User, password, and the password as `htpasswd` stores it.
const USER: &str = "tester";
const PASSWORD: &str = "test-password";
const PASSWORD_HASH: &str = "$2a$04$dgF0ID.vkUe1gak/pTTLA.VQ6PZiRns.Jk5J6oDFb/55ZMSuZfRMO";

/// Host of the API server in the test of name resolution.
const API_HOST: &str = "api.steersman.test";

fn image(arguments: &[&str], program: &Path, output: &Path) -> Output {
    let mut command = xtask();
    command.arg("image").args(arguments).arg("--operator").arg(program).arg("--output").arg(output);
    // Without credentials of the user who runs the test.
    command.env("DOCKER_CONFIG", output).env_remove("SOURCE_DATE_EPOCH");
    command.output().unwrap()
}

/// Writes an image and returns the digest that the command printed.
fn write_image(arguments: &[&str], program: &Path, output: &Path) -> String {
    let ended = image(arguments, program, output);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = String::from_utf8(ended.stdout).unwrap();
    let digest = text.lines().find_map(|line| line.strip_prefix("digest")).unwrap_or_else(|| panic!("{text}"));
    digest.trim().to_owned()
}

fn last_error(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    text.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// The debug build of the operator. An earlier step of the run has built it already.
fn operator() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--workspace", "--locked", "--quiet", "--bin", "steersman"]);
    build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    // Variables of this test's package would let build scripts run again.
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_"))
    {
        build.env_remove(name);
    }
    assert!(build.status().unwrap().success());
    Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("steersman")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn blob(layout: &Path, digest: &Value) -> Vec<u8> {
    let digest = digest.as_str().unwrap();
    fs::read(layout.join("blobs").join(digest.replacen(':', "/", 1))).unwrap()
}

fn manifest(layout: &Path) -> Value {
    let index = json(&fs::read(layout.join("index.json")).unwrap());
    json(&blob(layout, &index["manifests"][0]["digest"]))
}

/// Unpacks the image as a runtime does.
fn unpack(layout: &Path, root: &Path) {
    for layer in manifest(layout)["layers"].as_array().unwrap() {
        let bytes = blob(layout, &layer["digest"]);
        let zipped = layer["mediaType"].as_str().unwrap().ends_with("gzip");
        let reader: Box<dyn Read> =
            if zipped { Box::new(GzDecoder::new(bytes.as_slice())) } else { Box::new(bytes.as_slice()) };
        tar::Archive::new(reader).unpack(root).unwrap();
    }
}

/// Paths of the files in the image that a user may execute, and of all links.
fn programs(layout: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for layer in manifest(layout)["layers"].as_array().unwrap() {
        let bytes = blob(layout, &layer["digest"]);
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let kind = entry.header().entry_type();
            let is_program = kind.is_file() && entry.header().mode().unwrap() & 0o111 != 0;
            let path = entry.path().unwrap().display().to_string();
            // Shared libraries and the dynamic loader may have the mode of a program.
            let is_library = path.contains(".so");
            if !is_library && (is_program || kind.is_symlink() || kind.is_hard_link()) {
                found.insert(path.trim_start_matches("./").to_owned());
            }
        }
    }
    found
}

#[test]
fn image_of_operator_is_reproducible_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = operator();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // A copy with another time and another owner's rights is the same program.
    let copy = folder.path().join("copy");
    fs::copy(&program, &copy).unwrap();
    fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let digest = write_image(&["--uncompressed"], &program, &first);
    assert_eq!(digest, write_image(&["--uncompressed"], &copy, &second));
    let archive = |output: &Path| {
        let mut files = fs::read_dir(output).unwrap().map(|file| file.unwrap().path());
        fs::read(files.find(|path| path.extension().is_some_and(|ending| ending == "tar")).unwrap()).unwrap()
    };
    assert!(archive(&first) == archive(&second), "the archives differ");

    let layout = first.join("layout");
    let config = json(&blob(&layout, &manifest(&layout)["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    let labels = config["config"]["Labels"].as_object().unwrap();
    for (name, expected) in [("title", "Steersman"), ("version", env!("CARGO_PKG_VERSION")), ("licenses", "Apache-2.0")]
    {
        assert_eq!(labels[&format!("org.opencontainers.image.{name}")], expected);
    }
    if let Some(commit) = commit() {
        let revision = labels["org.opencontainers.image.revision"].as_str().unwrap();
        assert_eq!(revision.trim_end_matches("-modified"), commit);
        assert_eq!(labels["org.opencontainers.image.created"], config["created"]);
    }
    assert_eq!(programs(&layout), BTreeSet::from(["usr/local/bin/steersman".to_owned()]), "there is no shell");
    let root = folder.path().join("root");
    unpack(&layout, &root);
    let list = fs::read_dir(&first).unwrap().map(|file| file.unwrap().path());
    let list = list.into_iter().find(|path| path.to_string_lossy().ends_with(".cdx.json")).unwrap();
    let inside = fs::read(root.join("usr/share/sbom/steersman.cdx.json")).unwrap();
    assert!(inside == fs::read(list).unwrap(), "the list of components is in the image");
    if !rustix::process::geteuid().is_root() {
        let test = "image::image_of_operator_is_reproducible_and_runs: the program in the root folder of the image";
        return skip::skip_on_this_machine(test, "only root may change the root folder");
    }
    let entrypoint = config["config"]["Entrypoint"][0].as_str().unwrap();
    let version = in_root(&root, entrypoint, &["--version"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), format!("steersman {}\n", env!("CARGO_PKG_VERSION")));
    // Containers that the operator adds to pods name the program without its folder.
    let path = config["config"]["Env"].as_array().unwrap().iter().find_map(|one| one.as_str()?.strip_prefix("PATH="));
    assert!(root.join(path.unwrap().trim_start_matches('/')).join("steersman").is_file());
    let bundle = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    assert!(bundle.matches("-----BEGIN CERTIFICATE-----").count() > 100);
    resolves_names(&root, entrypoint);
    trusts_bundle(&root, entrypoint);
}

/// The commit of the clone, if it is one.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// The command in the root folder of the image, as the user of the image and without variables.
fn in_root(root: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command.args(["--userspec=65532:65532", "--groups="]).arg(root).arg(program).args(arguments);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Writes a kubeconfig for this server, without its CA, into the root folder of the image.
fn write_kubeconfig(root: &Path, server: &str) {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "clusters": [{ "name": "test", "cluster": { "server": server } }],
        "users": [{ "name": "test", "user": {} }],
    });
    fs::write(root.join("tmp/kubeconfig"), kubeconfig.to_string()).unwrap();
}

/// Lets the operator connect to a server with TLS, before and after its CA is in the list of the image.
fn trusts_bundle(root: &Path, entrypoint: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let Some(server) = runtime.block_on(PrometheusServer::start(ClientAuth::NotRequired)).unwrap() else {
        return skip::skip("image: the list of CAs", "Prometheus is not built; `cargo xtask test` builds it");
    };
    write_kubeconfig(root, &server.url());
    let error = || {
        let output = in_root(root, entrypoint, &["preflight", "--kubeconfig", "/tmp/kubeconfig"]).output().unwrap();
        assert!(!output.status.success(), "the server is no API server");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let unknown = error();
    assert!(unknown.contains("is not trusted (UnknownIssuer)"), "{unknown}");
    let authority = fs::read_to_string(server.file("ca.pem")).unwrap();
    let bundle = root.join("etc/ssl/certs/ca-certificates.crt");
    fs::write(&bundle, fs::read_to_string(&bundle).unwrap() + &authority).unwrap();
    let trusted = error();
    assert!(trusted.contains("404 page not found") && !trusted.contains("is not trusted"), "{trusted}");
}

/// Lets the operator look for an API server whose name only the DNS server of this test knows.
fn resolves_names(root: &Path, entrypoint: &str) {
    // Other runs of this test have other addresses.
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let address = Ipv4Addr::new(127, 53, high, low.max(1));
    let dns = UdpSocket::bind((address, 53)).unwrap();
    std::thread::spawn(move || answer_lookups(&dns));
    let api = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = api.local_addr().unwrap().port();
    let server = format!("http://{API_HOST}:{port}");
    fs::write(root.join("etc/resolv.conf"), format!("nameserver {address}\noptions timeout:1\n")).unwrap();
    write_kubeconfig(root, &server);
    let mut command = in_root(root, entrypoint, &["preflight", "--kubeconfig", "/tmp/kubeconfig"]);
    let mut running = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    api.set_nonblocking(true).unwrap();
    let mut connection = None;
    eventually("the operator reaches the API server by its name", || {
        connection = api.accept().ok();
        connection.is_some()
    });
    let request = head(connection.unwrap().0);
    let _ = running.kill();
    let _ = running.wait();
    assert!(request.to_ascii_lowercase().contains(&format!("host: {API_HOST}:{port}")), "{request}");
}

/// The first bytes of a request.
fn head(mut connection: TcpStream) -> String {
    connection.set_nonblocking(false).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = connection.read(&mut piece).unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&piece[..read]);
    }
    let _ = connection.write_all(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    String::from_utf8(bytes).unwrap()
}

/// Answers queries for the host of the API server with 127.0.0.1, and others with no record.
fn answer_lookups(dns: &UdpSocket) {
    let mut packet = [0; 512];
    while let Ok((length, client)) = dns.recv_from(&mut packet) {
        let query = &packet[..length];
        // After the header of 12 bytes, each label of the name has its length; an empty one ends it.
        let mut end = 12;
        let mut labels = Vec::new();
        while query[end] != 0 {
            let label = &query[end + 1..end + 1 + usize::from(query[end])];
            labels.push(String::from_utf8_lossy(label).into_owned());
            end += label.len() + 1;
        }
        let question = &query[12..end + 5];
        let is_address = query[end + 1..end + 3] == [0, 1];
        let found = labels.join(".") == API_HOST && is_address;
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, u8::from(found), 0, 0, 0, 0]);
        answer.extend(question);
        if found {
            // The name of the question, type A, class IN, 60 seconds, four bytes.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend(Ipv4Addr::LOCALHOST.octets());
        }
        let _ = dns.send_to(&answer, client);
    }
}

/// A registry process, which requires a password if `users` is set.
struct Registry {
    _process: Process,
    _folder: tempfile::TempDir,
    host: String,
}

impl Registry {
    /// `None` if it is not built; the test is listed as skipped then.
    fn start(test: &str, users: bool) -> Option<Self> {
        let Some(programs) = REGISTRY.find().unwrap() else {
            skip::skip(test, "the registry is not built; `cargo xtask test --suite commands` builds it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let host = format!("127.0.0.1:{}", ReservedPort::any_free().unwrap().number());
        let mut config = serde_json::json!({
            "version": "0.1",
            "log": { "level": "warn" },
            "storage": { "inmemory": {} },
            "http": { "addr": host },
        });
        if users {
            let path = folder.path().join("htpasswd");
            fs::write(&path, format!("{USER}:{PASSWORD_HASH}\n")).unwrap();
            config["auth"] = serde_json::json!({ "htpasswd": { "realm": "test", "path": path } });
        }
        // JSON is YAML.
        let file = folder.path().join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        let arguments = ["serve", file.to_str().unwrap()];
        let log = folder.path().join("log");
        let mut process =
            Process::start("registry", &programs.path("registry"), &arguments, folder.path(), log).unwrap();
        eventually("the registry listens", || {
            process.ensure_running().unwrap();
            TcpStream::connect(&host).is_ok()
        });
        Some(Self { _process: process, _folder: folder, host })
    }

    /// Reads content of the repository `team/steersman`, and checks it against the digest.
    fn read(&self, path: &str, digest: &str) -> Bytes {
        let url = format!("http://{}/v2/team/steersman/{path}", self.host);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(MANIFEST_TYPE));
        headers.insert(AUTHORIZATION, format!("Basic {}", login(PASSWORD)).parse().unwrap());
        let request = HttpRequest { method: Method::GET, headers, ..HttpRequest::get(url.parse().unwrap(), 64 << 20) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let http = Http::new(HttpSettings { plain: true, ..HttpSettings::default() }).unwrap();
        let response = runtime.block_on(http.send(request)).unwrap();
        assert!(response.status.is_success(), "{path}: {}", response.status);
        let hash = Sha256::digest(&response.body).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(format!("sha256:{hash}"), digest, "{path}");
        response.body
    }
}

/// User and password as they are written in headers and in `config.json`.
fn login(password: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{password}"))
}

fn write_login(folder: &Path, host: &str, password: &str) {
    fs::create_dir_all(folder).unwrap();
    let config = serde_json::json!({ "auths": { host: { "auth": login(password) } } });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn pushed_image_is_complete_in_registry() {
    let Some(registry) = Registry::start("image::pushed_image_is_complete_in_registry", true) else { return };
    let folder = tempfile::tempdir().unwrap();
    write_login(folder.path(), &registry.host, PASSWORD);
    let name = format!("{}/team/steersman:1.2.3", registry.host);
    let push = || {
        let ended = image(&["--push", &name, "--plain-http"], Path::new(OTHER_PROGRAM), folder.path());
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).unwrap()
    };
    let text = push();
    assert!(text.contains("(3 blobs uploaded, 0 were there)"), "{text}");
    assert!(text.contains(&format!("|{name}|' deploy/install.yaml | kubectl apply")), "{text}");
    let digest = text.lines().find_map(|line| line.strip_prefix("digest")).unwrap().trim();
    let manifest = json(&registry.read("manifests/1.2.3", digest));
    for part in manifest["layers"].as_array().unwrap().iter().chain([&manifest["config"]]) {
        let digest = part["digest"].as_str().unwrap();
        let content = registry.read(&format!("blobs/{digest}"), digest);
        assert_eq!(part["size"].as_u64(), Some(content.len() as u64));
    }
    let again = push();
    assert!(again.contains("(0 blobs uploaded, 3 were there)"), "{again}");
}

#[test]
fn failed_push_reports_cause_and_remedy() {
    let Some(registry) = Registry::start("image::failed_push_reports_cause_and_remedy", true) else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = &registry.host;
    let name = format!("{host}/team/steersman:1");
    let error = |arguments: &[&str]| last_error(&image(arguments, Path::new(OTHER_PROGRAM), folder.path()));
    let plain = ["--push", name.as_str(), "--plain-http"];
    let missing = error(&plain);
    assert!(missing.starts_with(&format!("registry {host} requires credentials for team/steersman")), "{missing}");
    assert!(missing.contains(&format!("run `docker login {host}`")), "{missing}");
    write_login(folder.path(), host, "wrong");
    let wrong = error(&plain);
    assert!(wrong.starts_with(&format!("registry {host} rejects the credentials in ")), "{wrong}");
    assert!(!wrong.contains("wrong") && !wrong.contains(&login("wrong")), "{wrong}");
    let encrypted = error(&["--push", &name]);
    assert!(encrypted.ends_with("if the registry serves no https, add --plain-http"), "{encrypted}");
    // No password leaves this machine unencrypted.
    let remote = "registry.invalid:5000/team/steersman:1";
    write_login(folder.path(), "registry.invalid:5000", PASSWORD);
    let refused = error(&["--push", remote, "--plain-http"]);
    assert!(refused.contains("--plain-http would send them unencrypted"), "{refused}");
    fs::write(folder.path().join("config.json"), "{").unwrap();
    let unreadable = error(&plain);
    assert!(unreadable.contains("is not a configuration of Docker"), "{unreadable}");
}

#[test]
fn wrong_arguments_of_image_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let missing = last_error(&image(&[], Path::new("/nowhere/steersman"), folder.path()));
    assert_eq!(missing, "--operator: file /nowhere/steersman does not exist");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = last_error(&image(&[], &manifest, folder.path()));
    assert!(text.contains("Cargo.toml is not a program or library of a 64-bit Linux (ELF)"), "{text}");
    for (arguments, expected) in [
        (&["--name", "case/UPPER:1"][..], "is not an image reference"),
        (&["--push", "a.example/b@sha256:1"], "is not a digest"),
        (&["--plain-http"], "--push"),
    ] {
        let output = image(arguments, Path::new(OTHER_PROGRAM), folder.path());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}
