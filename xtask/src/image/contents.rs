//! Files and settings of the operator's image: the program and only what it needs. There is no shell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use steersman::install::USER;

use super::release::Revision;
use super::{Entry, ImageConfig};

/// Folder of the program. It is on the PATH of the image, because containers that the operator adds to pods run `steersman`.
const PROGRAM_FOLDER: &str = "/usr/local/bin";

/// Where TLS libraries look for the CAs of the system.
pub const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The list of components. Scanners look for files with this ending.
pub const SBOM: &str = "/usr/share/sbom/steersman.cdx.json";

/// Names come from `/etc/hosts`, which the kubelet writes, and then from DNS.
const NAME_SERVICE_SWITCH: &str = "passwd: files\ngroup: files\nhosts: files dns\n";

/// The layer that changes only with the system and the list of CAs.
pub fn base(libraries: &[PathBuf], ca_bundle: String) -> Result<Vec<Entry>> {
    let mut entries = vec![
        Entry::bytes("/etc/passwd", 0o644, format!("root:x:0:0:root:/:\nsteersman:x:{USER}:{USER}:steersman:/:\n")),
        Entry::bytes("/etc/group", 0o644, format!("root:x:0:\nsteersman:x:{USER}:\n")),
        Entry::bytes("/etc/nsswitch.conf", 0o644, NAME_SERVICE_SWITCH),
        Entry::bytes(CA_BUNDLE, 0o644, ca_bundle),
        Entry::folder("/tmp", 0o1777),
    ];
    for library in libraries {
        entries.push(Entry::host_file(library, library)?);
    }
    Ok(entries)
}

/// The layer with the program, its license and the list of its components.
pub fn program(program: &Path, sbom: Vec<u8>) -> Result<Vec<Entry>> {
    Ok(vec![
        Entry::host_file(format!("{PROGRAM_FOLDER}/steersman"), program)?,
        Entry::host_file("/usr/share/doc/steersman/LICENSE", crate::root().join("LICENSE"))?,
        Entry::bytes(SBOM, 0o644, sbom),
    ])
}

pub fn config(revision: &Revision) -> ImageConfig {
    let mut labels = BTreeMap::from([
        ("title", "Steersman".to_owned()),
        ("description", "Kubernetes operator for serving language models".to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("licenses", "Apache-2.0".to_owned()),
    ]);
    if let Some(commit) = &revision.commit {
        labels.insert("revision", commit.clone());
    }
    if let Some(time) = revision.time {
        labels.insert("created", time.to_string());
    }
    ImageConfig {
        created: revision.time,
        user: format!("{USER}:{USER}"),
        environment: BTreeMap::from([("PATH".to_owned(), PROGRAM_FOLDER.to_owned())]),
        entrypoint: vec![format!("{PROGRAM_FOLDER}/steersman")],
        arguments: vec!["--help".to_owned()],
        working_folder: "/".to_owned(),
        labels: labels.into_iter().map(|(name, text)| (format!("org.opencontainers.image.{name}"), text)).collect(),
    }
}

/// Mozilla's list of CAs, from a crate of a pinned version: the CAs of this machine would change the digest, and could include
/// private ones.
pub fn ca_bundle() -> String {
    let mut bundle = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let text = STANDARD.encode(certificate);
        bundle.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            // Base64 is ASCII, so that every position is a boundary.
            let (line, after) = rest.split_at(rest.len().min(64));
            bundle.push_str(line);
            bundle.push('\n');
            rest = after;
        }
        bundle.push_str("-----END CERTIFICATE-----\n");
    }
    bundle
}
