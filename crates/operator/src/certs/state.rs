//! The state of a rotation as it is stored in the Secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::certs::check::certified_key;
use crate::certs::generation::{CertificatePair, blocks};

/// Annotation by which users request a rotation, with any value; removed when the rotation begins.
pub const ROTATE: &str = "steersman.dev/rotate";

/// Annotation with the time at which the served certificate was replaced, present while an earlier CA is still trusted.
const REPLACED_AT: &str = "steersman.dev/moved";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// CAs that clients trust, newest first.
    pub bundle: Vec<String>,
    /// Certificate that every replica serves.
    pub leaf: CertificatePair,
    /// Successor, to be served once every client trusts its CA, which is in the bundle already.
    pub next: Option<CertificatePair>,
    /// When the served certificate was replaced. None: no earlier CA is trusted.
    pub replaced_at: Option<Timestamp>,
    /// A user requested a rotation.
    pub rotation_requested: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{0} is not UTF-8 text")]
    NotText(&'static str),
    #[error("{0} cannot be used: {1}")]
    Bad(&'static str, String),
}

impl CertificateState {
    /// The first state, with a single CA.
    pub fn first(generated: CertificatePair) -> Self {
        Self {
            bundle: generated.ca().into_iter().collect(),
            leaf: generated,
            next: None,
            replaced_at: None,
            rotation_requested: false,
        }
    }

    /// Begins a rotation: adds the new CA to the bundle. The CA of an abandoned successor stays until the end as well:
    /// another replica may serve that successor.
    pub fn with_successor(&self, generated: CertificatePair) -> Self {
        let bundle = generated.ca().into_iter().chain(self.bundle.iter().cloned()).collect();
        Self { bundle, next: Some(generated), rotation_requested: false, ..self.clone() }
    }

    /// Serves the successor. The replaced CA stays in the bundle, for replicas that lag behind.
    pub fn activated(&self, now: Timestamp) -> Self {
        match &self.next {
            Some(next) => Self { leaf: next.clone(), next: None, replaced_at: Some(now), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Ends the rotation: removes CAs without a certificate in use.
    pub fn retired(&self) -> Self {
        let used: Vec<_> = std::iter::once(&self.leaf).chain(&self.next).filter_map(CertificatePair::ca).collect();
        let bundle = self.bundle.iter().filter(|ca| used.contains(ca)).cloned().collect();
        Self { bundle, replaced_at: None, ..self.clone() }
    }

    pub fn ca_bundle(&self) -> ByteString {
        ByteString(self.bundle.concat().into_bytes())
    }

    pub fn read(secret: &Secret) -> Result<Self, SecretError> {
        let text = |name: &'static str| -> Result<String, SecretError> {
            let bytes = secret.data.as_ref().and_then(|data| data.get(name)).ok_or(SecretError::Missing(name))?;
            String::from_utf8(bytes.0.clone()).map_err(|_| SecretError::NotText(name))
        };
        let bundle = blocks(&text(BUNDLE)?);
        let pair = |certificate, key| -> Result<CertificatePair, SecretError> {
            let pair = CertificatePair { certificate: text(certificate)?, key: text(key)? };
            certified_key(&pair).map_err(|why| SecretError::Bad(certificate, why))?;
            match pair.ca() {
                None => Err(SecretError::Bad(certificate, "the certificate is not followed by its CA".to_owned())),
                Some(ca) if bundle.contains(&ca) => Ok(pair),
                Some(_) => Err(SecretError::Bad(BUNDLE, format!("it does not have the CA of {certificate}"))),
            }
        };
        let leaf = pair(CERTIFICATE, KEY)?;
        let next = match text(NEXT_CERTIFICATE) {
            Err(SecretError::Missing(_)) => None,
            _ => Some(pair(NEXT_CERTIFICATE, NEXT_KEY)?),
        };
        let annotation = |name| secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        Ok(Self {
            bundle,
            leaf,
            next,
            // An unreadable time counts as long past: the earlier CA is removed at once.
            replaced_at: annotation(REPLACED_AT).map(|at| at.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
            rotation_requested: annotation(ROTATE).is_some(),
        })
    }

    /// Writes this state into the Secret. Other metadata stays.
    pub fn write(&self, secret: &mut Secret) {
        let mut data = BTreeMap::new();
        let mut put = |name: &str, text: String| data.insert(name.to_owned(), ByteString(text.into_bytes()));
        put(BUNDLE, self.bundle.concat());
        put(CERTIFICATE, self.leaf.certificate.clone());
        put(KEY, self.leaf.key.clone());
        if let Some(next) = &self.next {
            put(NEXT_CERTIFICATE, next.certificate.clone());
            put(NEXT_KEY, next.key.clone());
        }
        secret.data = Some(data);
        let annotations = secret.metadata.annotations.get_or_insert_default();
        if !self.rotation_requested {
            annotations.remove(ROTATE);
        }
        match self.replaced_at {
            Some(at) => annotations.insert(REPLACED_AT.to_owned(), at.to_string()),
            None => annotations.remove(REPLACED_AT),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::generation::generate;
    use super::*;

    fn generated() -> CertificatePair {
        generate(&["a.svc".to_owned()], Duration::from_secs(3600), Timestamp::now()).unwrap()
    }

    fn secret_of(state: &CertificateState) -> Secret {
        let mut secret = Secret::default();
        state.write(&mut secret);
        secret
    }

    #[test]
    fn rotation_states_round_trip_through_secret() {
        let first = CertificateState::first(generated());
        let rotating = first.with_successor(generated());
        let activated = rotating.activated("2026-11-16T00:00:00Z".parse().unwrap());
        let retired = activated.retired();
        let mut secret = Secret::default();
        // All states are written to one Secret: nothing of an earlier state may remain.
        for state in [&first, &rotating, &activated, &retired] {
            state.write(&mut secret);
            assert_eq!(CertificateState::read(&secret).as_ref(), Ok(state));
        }
    }

    #[test]
    fn rotate_annotation_is_removed_when_rotation_begins() {
        let first = CertificateState::first(generated());
        let mut secret = secret_of(&first);
        secret.metadata.annotations.get_or_insert_default().insert(ROTATE.to_owned(), String::new());
        secret.metadata.annotations.get_or_insert_default().insert("theirs".to_owned(), "kept".to_owned());
        let requested = CertificateState::read(&secret).unwrap();
        assert!(requested.rotation_requested);
        requested.write(&mut secret);
        assert!(
            CertificateState::read(&secret).unwrap().rotation_requested,
            "a write for another reason does not lose it"
        );
        requested.with_successor(generated()).write(&mut secret);
        assert!(!CertificateState::read(&secret).unwrap().rotation_requested);
        assert_eq!(secret.metadata.annotations.unwrap()["theirs"], "kept");
    }

    #[test]
    fn unusable_secret_is_described_without_key() {
        let (state, other) = (CertificateState::first(generated()), generated());
        let error_of = |name: &str, text: Option<&str>| {
            let mut secret = secret_of(&state);
            let data = secret.data.as_mut().unwrap();
            match text {
                Some(text) => data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec())),
                None => data.remove(name),
            };
            CertificateState::read(&secret).unwrap_err().to_string()
        };
        let leaf = state.leaf.certificate.replace(&state.leaf.ca().unwrap(), "");
        for (name, text, expected) in [
            ("tls.key", None, "tls.key is missing"),
            ("ca.crt", None, "ca.crt is missing"),
            ("tls.crt", Some("x"), "tls.crt cannot be used: it has no PEM certificate"),
            ("tls.key", Some(other.key.as_str()), "tls.crt cannot be used: the key does not belong to the certificate"),
            ("tls.crt", Some(leaf.as_str()), "tls.crt cannot be used: the certificate is not followed by its CA"),
            ("ca.crt", Some(&other.certificate), "ca.crt cannot be used: it does not have the CA of tls.crt"),
            ("next.crt", Some(&other.certificate), "next.key is missing"),
        ] {
            assert_eq!(error_of(name, text), expected);
        }
        assert!(!format!("{state:?}").contains("PRIVATE KEY"));
    }
}
