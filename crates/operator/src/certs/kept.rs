//! The state of a rotation as it is stored in the Secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;

use crate::certs::check::certified;
use crate::certs::generation::{Pair, blocks};

/// Annotation by which users request a rotation, with any value; removed when the rotation begins.
pub const ROTATE: &str = "steersman.dev/rotate";

/// Annotation with the time at which the served certificate was replaced, present while an earlier CA is still trusted.
const MOVED: &str = "steersman.dev/moved";

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const BUNDLE: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// CAs that clients trust, newest first.
    pub bundle: Vec<String>,
    /// Certificate that every replica serves.
    pub leaf: Pair,
    /// Successor, to be served once every client trusts its CA, which is in the bundle already.
    pub next: Option<Pair>,
    pub moved: Option<Timestamp>,
    /// A user requested a rotation.
    pub asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("it has no {0}")]
    Missing(&'static str),
    #[error("its {0} is not text")]
    NotText(&'static str),
    #[error("its {0} cannot be used: {1}")]
    Bad(&'static str, String),
}

impl Kept {
    /// The first state, with a single CA.
    pub fn fresh(made: Pair) -> Self {
        Self { bundle: made.ca().into_iter().collect(), leaf: made, next: None, moved: None, asked: false }
    }

    /// Begins a rotation: adds the new CA to the bundle. The CA of an abandoned successor stays until the end as well:
    /// another replica may serve that successor.
    pub fn begun(&self, made: Pair) -> Self {
        let bundle = made.ca().into_iter().chain(self.bundle.iter().cloned()).collect();
        Self { bundle, next: Some(made), asked: false, ..self.clone() }
    }

    /// Serves the successor. The replaced CA stays in the bundle, for replicas that lag behind.
    pub fn turned(&self, now: Timestamp) -> Self {
        match &self.next {
            Some(next) => Self { leaf: next.clone(), next: None, moved: Some(now), ..self.clone() },
            None => self.clone(),
        }
    }

    /// Ends the rotation: removes CAs without a certificate in use.
    pub fn retired(&self) -> Self {
        let used: Vec<_> = std::iter::once(&self.leaf).chain(&self.next).filter_map(Pair::ca).collect();
        let bundle = self.bundle.iter().filter(|ca| used.contains(ca)).cloned().collect();
        Self { bundle, moved: None, ..self.clone() }
    }

    pub fn ca_bundle(&self) -> ByteString {
        ByteString(self.bundle.concat().into_bytes())
    }

    pub fn read(secret: &Secret) -> Result<Self, Unusable> {
        let text = |name: &'static str| -> Result<String, Unusable> {
            let bytes = secret.data.as_ref().and_then(|data| data.get(name)).ok_or(Unusable::Missing(name))?;
            String::from_utf8(bytes.0.clone()).map_err(|_| Unusable::NotText(name))
        };
        let bundle = blocks(&text(BUNDLE)?);
        let pair = |certificate, key| -> Result<Pair, Unusable> {
            let pair = Pair { certificate: text(certificate)?, key: text(key)? };
            certified(&pair).map_err(|why| Unusable::Bad(certificate, why))?;
            match pair.ca() {
                None => Err(Unusable::Bad(certificate, "its CA does not follow it".to_owned())),
                Some(ca) if bundle.contains(&ca) => Ok(pair),
                Some(_) => Err(Unusable::Bad(BUNDLE, format!("it does not hold the CA of {certificate}"))),
            }
        };
        let leaf = pair(CERTIFICATE, KEY)?;
        let next = match text(NEXT_CERTIFICATE) {
            Err(Unusable::Missing(_)) => None,
            _ => Some(pair(NEXT_CERTIFICATE, NEXT_KEY)?),
        };
        let annotation = |name| secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(name));
        Ok(Self {
            bundle,
            leaf,
            next,
            // An unreadable time counts as long past: the earlier CA is removed at once.
            moved: annotation(MOVED).map(|at| at.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
            asked: annotation(ROTATE).is_some(),
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
        if !self.asked {
            annotations.remove(ROTATE);
        }
        match self.moved {
            Some(at) => annotations.insert(MOVED.to_owned(), at.to_string()),
            None => annotations.remove(MOVED),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::generation::make;
    use super::*;

    fn made() -> Pair {
        make(&["a.svc".to_owned()], Duration::from_secs(3600), Timestamp::now()).unwrap()
    }

    fn kept_in(kept: &Kept) -> Secret {
        let mut secret = Secret::default();
        kept.write(&mut secret);
        secret
    }

    #[test]
    fn rotation_states_round_trip_through_secret() {
        let fresh = Kept::fresh(made());
        let begun = fresh.begun(made());
        let turned = begun.turned("2026-11-16T00:00:00Z".parse().unwrap());
        let retired = turned.retired();
        let mut secret = Secret::default();
        // All states are written to one Secret: nothing of an earlier state may remain.
        for state in [&fresh, &begun, &turned, &retired] {
            state.write(&mut secret);
            assert_eq!(Kept::read(&secret).as_ref(), Ok(state));
        }
    }

    #[test]
    fn rotate_annotation_is_removed_when_rotation_begins() {
        let fresh = Kept::fresh(made());
        let mut secret = kept_in(&fresh);
        secret.metadata.annotations.get_or_insert_default().insert(ROTATE.to_owned(), String::new());
        secret.metadata.annotations.get_or_insert_default().insert("theirs".to_owned(), "kept".to_owned());
        let asked = Kept::read(&secret).unwrap();
        assert!(asked.asked);
        asked.write(&mut secret);
        assert!(Kept::read(&secret).unwrap().asked, "a write for another reason does not lose it");
        asked.begun(made()).write(&mut secret);
        assert!(!Kept::read(&secret).unwrap().asked);
        assert_eq!(secret.metadata.annotations.unwrap()["theirs"], "kept");
    }

    #[test]
    fn unusable_secret_is_described_without_key() {
        let (kept, other) = (Kept::fresh(made()), made());
        let spoilt = |name: &str, text: Option<&str>| {
            let mut secret = kept_in(&kept);
            let data = secret.data.as_mut().unwrap();
            match text {
                Some(text) => data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec())),
                None => data.remove(name),
            };
            Kept::read(&secret).unwrap_err().to_string()
        };
        let leaf = kept.leaf.certificate.replace(&kept.leaf.ca().unwrap(), "");
        for (name, text, expected) in [
            ("tls.key", None, "it has no tls.key"),
            ("ca.crt", None, "it has no ca.crt"),
            ("tls.crt", Some("x"), "its tls.crt cannot be used: there is no certificate in PEM form"),
            ("tls.key", Some(other.key.as_str()), "its tls.crt cannot be used: the key is not that of the certificate"),
            ("tls.crt", Some(leaf.as_str()), "its tls.crt cannot be used: its CA does not follow it"),
            ("ca.crt", Some(&other.certificate), "its ca.crt cannot be used: it does not hold the CA of tls.crt"),
            ("next.crt", Some(&other.certificate), "it has no next.key"),
        ] {
            assert_eq!(spoilt(name, text), expected);
        }
        assert!(!format!("{kept:?}").contains("PRIVATE KEY"));
    }
}
