//! Generates a CA and the single leaf that it signs.
//!
//! The key of the CA is dropped after signing: a reader of the Secret cannot sign other certificates, and each new leaf has a
//! new CA, so that there is one kind of rotation, exercised every time.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Clock skew: a certificate that is valid from now on would be refused by clients whose clock is behind.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(3600);

const PEM_END: &str = "-----END CERTIFICATE-----";

/// A certificate and its key, both as PEM. Certificates generated here are followed by their CA, so that the Secret shows which
/// CA belongs to which certificate without parsing them.
#[derive(Clone, PartialEq, Eq)]
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

impl CertificatePair {
    pub fn ca(&self) -> Option<String> {
        blocks(&self.certificate).into_iter().nth(1)
    }
}

/// The blocks of a PEM text with any number of certificates, in the normal form in which they are stored and compared.
pub fn blocks(pem: &str) -> Vec<String> {
    let whole = pem.split_inclusive(PEM_END).filter(|block| block.ends_with(PEM_END));
    whole.map(|block| format!("{}\n", block.trim_start())).collect()
}

/// Omits the key.
impl fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot generate a certificate for {names}: {cause}")]
pub struct GenerateError {
    names: String,
    cause: String,
}

/// Generates a CA and a leaf for `names` (DNS names and IP addresses), both valid for `validity` from `now`.
pub fn generate(names: &[String], validity: Duration, now: Timestamp) -> Result<CertificatePair, GenerateError> {
    try_generate(names, validity, now).map_err(|cause| GenerateError { names: names.join(", "), cause })
}

fn try_generate(names: &[String], validity: Duration, now: Timestamp) -> Result<CertificatePair, String> {
    let from = moment(now.checked_sub(MAX_CLOCK_SKEW))?;
    let to = moment(now.checked_add(validity))?;
    let text = |error: rcgen::Error| error.to_string();

    let mut ca = CertificateParams::default();
    (ca.not_before, ca.not_after) = (from, to);
    // Each CA has its own name: verifiers choose among CAs by name, and two of one name are ambiguous.
    ca.distinguished_name = common_name(&format!("Steersman webhook CA {}", now.as_second()));
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().map_err(text)?).map_err(text)?;

    let mut leaf = CertificateParams::new(names).map_err(text)?;
    (leaf.not_before, leaf.not_after) = (from, to);
    leaf.distinguished_name = common_name("Steersman webhook");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(text)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(text)?;
    let chain = blocks(&(certificate.pem() + &issuer.pem())).concat();
    Ok(CertificatePair { certificate: chain, key: key.serialize_pem() })
}

fn moment(at: Result<Timestamp, jiff::Error>) -> Result<OffsetDateTime, String> {
    let at = at.map_err(|error| error.to_string())?;
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|error| error.to_string())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
