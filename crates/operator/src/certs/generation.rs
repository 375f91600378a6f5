//! A new certificate.
//! Comes in: the names it stands for and how long it lives; goes out: one CA, and the one leaf that this CA has signed.
//!
//! The CA's key is forgotten as soon as it has signed: nobody who reads the Secret can sign anything else, and a new leaf
//! always brings a new CA, so that there is one kind of rotation and it is exercised every time.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use time::OffsetDateTime;

/// Clocks differ: what is valid from now on would be refused by whoever is a little behind.
const BEHIND: Duration = Duration::from_secs(3600);

const END: &str = "-----END CERTIFICATE-----";

/// A certificate and its key, both as PEM. What we make ourselves has its CA after the certificate, so that the Secret says
/// which belong together without anybody having to read certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Pair {
    /// The CA that has signed the certificate.
    pub fn ca(&self) -> Option<String> {
        blocks(&self.certificate).into_iter().nth(1)
    }
}

/// The blocks of a PEM text with any number of certificates, each in the form in which it is kept.
pub fn blocks(pem: &str) -> Vec<String> {
    let whole = pem.split_inclusive(END).filter(|block| block.ends_with(END));
    whole.map(|block| format!("{}\n", block.trim_start())).collect()
}

/// Mute about the key.
impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot make a certificate for {names}: {cause}")]
pub struct NotMade {
    names: String,
    cause: String,
}

/// Makes a CA and a leaf for `names` (DNS names and IP addresses), both valid for `life` from `now`.
pub fn make(names: &[String], life: Duration, now: Timestamp) -> Result<Pair, NotMade> {
    made(names, life, now).map_err(|cause| NotMade { names: names.join(", "), cause })
}

fn made(names: &[String], life: Duration, now: Timestamp) -> Result<Pair, String> {
    let from = moment(now.checked_sub(BEHIND))?;
    let to = moment(now.checked_add(life))?;
    let said = |error: rcgen::Error| error.to_string();

    let mut ca = CertificateParams::default();
    (ca.not_before, ca.not_after) = (from, to);
    // A name of its own: whoever checks a leaf against two CAs of one name has to guess.
    ca.distinguished_name = named(&format!("Steersman webhook CA {}", now.as_second()));
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().map_err(said)?).map_err(said)?;

    let mut leaf = CertificateParams::new(names).map_err(said)?;
    (leaf.not_before, leaf.not_after) = (from, to);
    leaf.distinguished_name = named("Steersman webhook");
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(said)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(said)?;
    let chain = blocks(&(certificate.pem() + &issuer.pem())).concat();
    Ok(Pair { certificate: chain, key: key.serialize_pem() })
}

fn moment(at: Result<Timestamp, jiff::Error>) -> Result<OffsetDateTime, String> {
    let at = at.map_err(|error| error.to_string())?;
    OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|error| error.to_string())
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
