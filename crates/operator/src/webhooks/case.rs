//! Reads the objects of an admission request in the storage version, and renders refusals as API servers do for schema
//! errors.

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

/// The new and the old object, both in the storage version.
pub struct AdmissionCase {
    pub family: Family,
    pub new: Value,
    pub old: Option<Value>,
    pub namespace: String,
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
        Ok(Some(Self { family, new, old, namespace, names: field_names(family, &version) }))
    }

    /// The response. A refusal has no warnings: they are about the object as it would be stored.
    pub fn response<'a>(&self, errors: &[FieldError], warnings: impl IntoIterator<Item = &'a Message>) -> Response {
        if !errors.is_empty() {
            return Response::deny(self.refusal(errors));
        }
        let warnings = warnings.into_iter().map(|warning| warning.render(&self.names));
        warnings.fold(Response::allow(), Response::warn)
    }

    /// A refusal as API servers make it for schema errors: 422, with a cause for each field.
    fn refusal(&self, errors: &[FieldError]) -> Status {
        let metadata = &self.new["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str()).unwrap_or_default();
        let texts: Vec<String> = errors.iter().map(|error| error.text().render(&self.names)).collect();
        let text = match &texts[..] {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let causes = errors.iter().map(|error| StatusCause {
            reason: error.cause.reason().to_owned(),
            message: error.sentence().render(&self.names),
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
