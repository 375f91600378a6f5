//! Answers the ConversionReviews of `/convert`: either all objects are converted, or a Status names the one that is
//! not.
//!
//! The objects of a review are parsed, converted and written one by one: of a list of 500, one is in memory as a tree.

use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use steersman_api::convert::{ConvertError, Converted};

use crate::webhooks::losses::Losses;

const KIND: &str = "ConversionReview";
const VERSION: &str = "apiextensions.k8s.io/v1";

/// Largest object in bytes. No API server accepts more than 3 MiB, and conversion may have made the stored object
/// larger.
const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;

/// Most objects in one review, far more than a chunk of a list has: bounds a body that consists of commas.
const MAX_OBJECTS: usize = 100_000;

/// Converts one object; [`steersman_api::convert::convert_for_review`] outside tests.
pub type Convert = fn(Value, &str) -> Result<Converted, ConvertError>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<ConversionRequest<'a>>,
}

#[derive(Deserialize)]
struct ConversionRequest<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(borrow, deserialize_with = "bounded")]
    objects: Vec<&'a RawValue>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConversionReviewError {
    #[error("this is not a {KIND} of {VERSION}: {0}")]
    NotAReview(serde_json::Error),
    #[error(
        "this webhook supports {KIND} of {VERSION}, not {kind:?} of {api_version:?}; \
         set conversionReviewVersions: [\"v1\"] in the CRD"
    )]
    OtherReview { kind: String, api_version: String },
    #[error("the {KIND} has no request")]
    NoRequest,
    #[error(
        "{which} in the {KIND} is larger than {} MiB, more than an API server accepts",
        MAX_OBJECT_BYTES / 1024 / 1024
    )]
    LargeObject { which: String },
    #[error("{which}: {cause}")]
    NotJson { which: String, cause: serde_json::Error },
    #[error("{which}: {cause}")]
    NotConverted { which: String, cause: ConvertError },
}

pub fn uid(body: &[u8]) -> Option<String> {
    let review: ConversionReview<'_> = serde_json::from_slice(body).ok()?;
    review.request.map(|request| request.uid)
}

/// Answers one review. A failure carries the uid of the review, or `uid` if that could not be read.
pub fn answer(
    body: &[u8],
    uid: &str,
    convert: Convert,
    losses: &Losses,
) -> Result<Vec<u8>, (String, ConversionReviewError)> {
    let unknown = |failure| (uid.to_owned(), failure);
    let review: ConversionReview<'_> =
        serde_json::from_slice(body).map_err(ConversionReviewError::NotAReview).map_err(unknown)?;
    if (review.kind.as_str(), review.api_version.as_str()) != (KIND, VERSION) {
        let uid = review.request.map_or_else(|| uid.to_owned(), |request| request.uid);
        return Err((uid, ConversionReviewError::OtherReview { kind: review.kind, api_version: review.api_version }));
    }
    let request = review.request.ok_or(ConversionReviewError::NoRequest).map_err(unknown)?;
    let mut text = Vec::with_capacity(body.len() + 256);
    text.extend_from_slice(head(&request.uid).as_bytes());
    match write_objects(&request, convert, losses, &mut text) {
        Ok(()) => text.extend_from_slice(b"]}}"),
        Err(failure) => return Err((request.uid, failure)),
    }
    Ok(text)
}

fn write_objects(
    request: &ConversionRequest<'_>,
    convert: Convert,
    losses: &Losses,
    written: &mut Vec<u8>,
) -> Result<(), ConversionReviewError> {
    for (index, raw) in request.objects.iter().enumerate() {
        let which = || format!("object {} of {}", index + 1, request.objects.len());
        if raw.get().len() > MAX_OBJECT_BYTES {
            return Err(ConversionReviewError::LargeObject { which: which() });
        }
        let not_json = |cause| ConversionReviewError::NotJson { which: which(), cause };
        let object: Value = serde_json::from_str(raw.get()).map_err(not_json)?;
        let object_revision = ObjectRevision::of(&object);
        let converted = convert(object, &request.desired).map_err(|cause| ConversionReviewError::NotConverted {
            which: format!("{} ({object_revision})", which()),
            cause,
        })?;
        losses.log_once(&object_revision, &request.desired, &converted.lost);
        if index > 0 {
            written.push(b',');
        }
        serde_json::to_writer(&mut *written, &converted.object).map_err(not_json)?;
    }
    Ok(())
}

fn head(uid: &str) -> String {
    format!(
        r#"{{"apiVersion":"{VERSION}","kind":"{KIND}","response":{{"uid":{},"result":{{"status":"Success"}},"convertedObjects":["#,
        Value::from(uid)
    )
}

/// A review without converted objects.
pub fn failure(uid: &str, code: u16, reason: &str, message: &str) -> Vec<u8> {
    let result = json!({ "status": "Failure", "code": code, "reason": reason, "message": message });
    let response = json!({ "uid": uid, "result": result, "convertedObjects": [] });
    json!({ "apiVersion": VERSION, "kind": KIND, "response": response }).to_string().into_bytes()
}

/// Identity of one generation of an object, for messages and to log a loss once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectRevision {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
}

impl ObjectRevision {
    /// Every field may be absent: server-side apply converts parts of objects.
    fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self {
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
        }
    }
}

impl fmt::Display for ObjectRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        let namespace = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        write!(f, "{} {namespace}{}", or(&self.kind, "unknown kind"), or(&self.name, "without a name"))
    }
}

fn bounded<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'a RawValue>, D::Error> {
    struct Bounded;

    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut objects = Vec::new();
            while let Some(object) = list.next_element()? {
                if objects.len() == MAX_OBJECTS {
                    return Err(A::Error::custom(format!("it has more than {MAX_OBJECTS} objects")));
                }
                objects.push(object);
            }
            Ok(objects)
        }
    }

    deserializer.deserialize_seq(Bounded)
}
