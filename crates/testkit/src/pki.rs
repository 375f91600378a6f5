//! Certificates of one local cluster: its authority, server certificates, and client certificates for named users. They are
//! stored in a folder, so that every process of a run can issue certificates.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate with its key, both PEM.
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// The authority of a cluster.
pub struct Authority {
    folder: PathBuf,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority and the files that the API server and the controller manager read.
    pub fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let key = KeyPair::generate()?;
        write(folder, "ca.pem", &authority_parameters()?.self_signed(&key)?.pem())?;
        write(folder, "ca-key.pem", &key.serialize_pem())?;
        let authority = Self::open(folder)?;
        authority.store_api_server(&[])?;
        // The API server calls etcd and aggregated APIs as this client. It has no authority of its own, so an aggregated
        // API has to check the name.
        authority.store("front-proxy", &authority.client("front-proxy-client", None)?)?;
        // The API server calls kubelets as this client, for logs and `kubectl exec`.
        authority.store("kubelet-client", &authority.client("kube-apiserver", Some("system:masters"))?)?;
        // The API server calls admission webhooks as this client.
        authority.store("webhook-client", &authority.client("api-server", None)?)?;
        let accounts = KeyPair::generate()?;
        write(folder, "service-accounts-key.pem", &accounts.serialize_pem())?;
        write(folder, "service-accounts.pem", &accounts.public_key_pem())?;
        Ok(authority)
    }

    /// Writes the certificate of the API server, which is also reached at `addresses`.
    pub fn store_api_server(&self, addresses: &[&str]) -> Result<()> {
        let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        self.store("server", &self.server(&[&names, addresses].concat())?)
    }

    /// Opens the authority that another process of this run has created.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let issuer = Issuer::new(authority_parameters()?, KeyPair::from_pem(&read("ca-key.pem")?)?);
        Ok(Self { folder: folder.to_owned(), certificate: read("ca.pem")?, issuer })
    }

    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The path of one of the files in the authority's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A certificate for a server known by `names` (host names or IP addresses).
    pub fn server(&self, names: &[&str]) -> Result<Identity> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let common_name = names.first().cloned().unwrap_or_default();
        self.issue(CertificateParams::new(names)?, &common_name, None, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate of the user `name`, in `group` if there is one.
    pub fn client(&self, name: &str, group: Option<&str>) -> Result<Identity> {
        self.issue(CertificateParams::default(), name, group, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// Writes an identity as `<name>.pem` and `<name>-key.pem`.
    pub fn store(&self, name: &str, identity: &Identity) -> Result<()> {
        write(&self.folder, &format!("{name}.pem"), &identity.certificate)?;
        write(&self.folder, &format!("{name}-key.pem"), &identity.key)
    }

    fn issue(
        &self,
        mut parameters: CertificateParams,
        name: &str,
        group: Option<&str>,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        parameters.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            parameters.distinguished_name.push(DnType::OrganizationName, group);
        }
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// Parameters of the authority's certificate. They are the same for every authority; only the key differs.
fn authority_parameters() -> Result<CertificateParams> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, "steersman local cluster");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(parameters)
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    write_private(&folder.join(name), text)
}

/// Writes a file that only its owner can read. The file is replaced atomically, because concurrent tests write the
/// kubeconfig of the same account.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}-{number}", std::process::id()));
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The certificate of a PEM text as DER.
pub(crate) fn certificate_der(pem: &str) -> Result<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?.to_vec())
}
