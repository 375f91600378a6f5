//! Reads the objects of an admission request in the storage version, and renders refusals as API servers do for schema
//! errors.

use k8s_openapi::api::authentication::v1::UserInfo;
use kube::api::DynamicObject;
use kube::core::Status;
use kube::core::admission::{AdmissionRequest, Operation};
use kube::core::response::{StatusCause, StatusDetails, reason};
use serde_json::Value;
use steersman_api::Family;
use steersman_api::convert::convert;
use steersman_plan::field_names;
use steersman_reconcile::{FieldError, FieldNames, Message};

use crate::webhooks::admission::Response;

/// Most errors or warnings in one response. An object may have thousands, and nobody reads them all.
const MAX_REPORTED: usize = 100;

/// Longest error or warning in bytes: it may quote a value of the object.
const MAX_MESSAGE_BYTES: usize = 2048;

/// The new and the old object, both in the storage version.
pub struct AdmissionCase {
    pub family: Family,
    pub new: Value,
    pub old: Option<Value>,
    pub namespace: String,
    /// The user who sent the request to the API server.
    pub requester: UserInfo,
    /// Names of fields in the version that the user wrote.
    names: FieldNames,
}

impl AdmissionCase {
    /// None if there is nothing to validate, because the request is a deletion or about a subresource. Our webhook
    /// configuration matches none of these, but another one may.
    pub fn read(family: Family, request: AdmissionRequest<DynamicObject>) -> Result<Option<Self>, Box<Response>> {
        let is_write = matches!(request.operation, Operation::Create | Operation::Update);
        let part = request.sub_resource.as_deref().is_some_and(|part| !part.is_empty());
        let Some(object) = request.object.filter(|_| is_write && !part) else { return Ok(None) };
        let (new, old) = (stored(family, object)?, request.old_object.map(|old| stored(family, old)).transpose()?);
        let namespace = request.namespace.unwrap_or_default();
        let version = request.request_kind.unwrap_or(request.kind).version;
        let (requester, names) = (request.user_info, field_names(family, &version));
        Ok(Some(Self { family, new, old, namespace, requester, names }))
    }

    /// The response. A refusal has no warnings: they are about the object as it would be stored.
    pub fn response<'a>(&self, errors: &[FieldError], warnings: impl IntoIterator<Item = &'a Message>) -> Response {
        if !errors.is_empty() {
            return Response::deny(self.refusal(errors));
        }
        let mut response = Response::allow();
        let mut unreported = 0usize;
        for warning in warnings {
            if response.warnings.len() < MAX_REPORTED {
                response = response.warn(shortened(warning.render(&self.names)));
            } else {
                unreported += 1;
            }
        }
        if unreported > 0 { response.warn(more("warnings", unreported)) } else { response }
    }

    /// A refusal as API servers make it for schema errors: 422, with a cause for each field.
    fn refusal(&self, errors: &[FieldError]) -> Status {
        let metadata = &self.new["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default();
        let (reported, rest) = errors.split_at(errors.len().min(MAX_REPORTED));
        let mut texts: Vec<String> = reported.iter().map(|error| shortened(error.text().render(&self.names))).collect();
        if !rest.is_empty() {
            texts.push(more("errors", rest.len()));
        }
        let text = match &texts[..] {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes = reported.iter().map(|error| StatusCause {
            reason: error.cause.reason().to_owned(),
            message: shortened(error.sentence().render(&self.names)),
            field: self.names.render(&error.path),
        });
        let (group, kind) = (self.family.group(), self.family.kind());
        let details = StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.collect(),
            uid: String::new(),
            retry_after_seconds: 0,
        };
        let message = format!("{kind}.{group} {name:?} is invalid: {text}");
        Status::failure(&message, reason::INVALID).with_code(422).with_details(details)
    }
}

fn more(what: &str, count: usize) -> String {
    format!("{count} more {what} are not shown; `steersman validate` reports all")
}

/// Shortens a message to [`MAX_MESSAGE_BYTES`] at the boundary of a character.
pub fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push_str(" ...");
    }
    message
}

/// The object in the storage version. API servers send new objects in the version of their author.
fn stored(family: Family, object: DynamicObject) -> Result<Value, Box<Response>> {
    let undecodable = |cause: &str| {
        let message = format!("cannot validate this {}: {cause}", family.kind());
        Box::new(Response::deny(Status::failure(&message, reason::BAD_REQUEST).with_code(400)))
    };
    let wanted = format!("{}/{}", family.group(), family.storage_version());
    let value = serde_json::to_value(object).map_err(|error| undecodable(&error.to_string()))?;
    if value["kind"].as_str().is_some_and(|kind| kind != family.kind()) {
        let (version, kind) = (value["apiVersion"].as_str().unwrap_or_default(), &value["kind"]);
        let message = format!(
            "admission requires {wanted}, Kind={}, got {version}, Kind={}; check webhook and CRD conversion configuration",
            family.kind(),
            kind.as_str().unwrap_or_default()
        );
        return Err(undecodable(&message));
    }
    if value["apiVersion"] == wanted.as_str() {
        return Ok(value);
    }
    convert(value, &wanted).map(|converted| converted.object).map_err(|error| undecodable(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use steersman_reconcile::path;

    use super::*;

    fn case() -> AdmissionCase {
        AdmissionCase {
            family: Family::Llsd,
            new: Value::Null,
            old: None,
            namespace: String::new(),
            requester: UserInfo::default(),
            names: field_names(Family::Llsd, "v1alpha2"),
        }
    }

    #[test]
    fn response_is_bounded() {
        let long = "é".repeat(MAX_MESSAGE_BYTES);
        let error = FieldError::new(path!(spec.disabled), "Invalid", long.clone(), "Remove it.".to_owned());
        let refused = case().response(&vec![error; 1000], []);
        let admission_status = match refused.verdict {
            crate::webhooks::admission::Verdict::Deny(status) => *status,
            verdict => panic!("{verdict:?}"),
        };
        let causes = admission_status.details.unwrap().causes;
        assert_eq!(causes.len(), MAX_REPORTED);
        assert!(causes.iter().all(|cause| cause.message.len() <= MAX_MESSAGE_BYTES + 4));
        assert!(admission_status.message.len() < (MAX_REPORTED + 1) * (MAX_MESSAGE_BYTES + 10));
        assert!(admission_status.message.ends_with("900 more errors are not shown; `steersman validate` reports all]"));

        let warning = Message::from(long);
        let allowed = case().response(&[], std::iter::repeat_n(&warning, 1000));
        assert_eq!(allowed.warnings.len(), MAX_REPORTED + 1);
        assert_eq!(allowed.warnings[MAX_REPORTED], "900 more warnings are not shown; `steersman validate` reports all");
    }
}
