//! Lists the metadata of all objects of a family, page by page.

use kube::api::{Api, ApiResource, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use steersman_api::Family;
use steersman_runtime::client::{CallError, Server};

/// Objects per page. Metadata is small, but each object of an old version costs the API server a conversion within the call.
const PAGE: u32 = 100;

/// Restarts after an expired continue token. A token is valid for minutes, and a page takes seconds.
const MAX_RESTARTS: usize = 5;

pub(super) fn resource(family: Family, version: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(family.group(), version, family.kind());
    ApiResource::from_gvk_with_plural(&kind, family.plural())
}

pub(super) struct Page {
    pub objects: Vec<PartialObjectMeta<DynamicObject>>,
    /// First page of the list, even of a restarted one, which repeats objects of earlier pages.
    pub first: bool,
}

pub(super) struct Pages<'a> {
    server: &'a Server,
    family: Family,
    /// Versions still to be tried; the first is the one that is listed.
    versions: Vec<&'a str>,
    failed: Option<CallError>,
    position: Position,
    restarts: usize,
}

enum Position {
    Start,
    After(String),
    End,
}

impl<'a> Pages<'a> {
    /// `versions` are tried in their order. One object that cannot be converted makes the whole list of a version fail; the
    /// version in which the object is stored can still be listed.
    pub fn new(server: &'a Server, family: Family, versions: Vec<&'a str>) -> Self {
        Self { server, family, versions, failed: None, position: Position::Start, restarts: 0 }
    }

    pub async fn next(&mut self) -> Result<Option<Page>, CallError> {
        loop {
            let params = match &self.position {
                Position::Start => ListParams::default().limit(PAGE),
                Position::After(token) => ListParams::default().limit(PAGE).continue_token(token),
                Position::End => return Ok(None),
            };
            let Some(version) = self.versions.first() else { return Ok(None) };
            let api: Api<DynamicObject> = Api::all_with(self.server.client.clone(), &resource(self.family, version));
            match self.server.call(api.list_metadata(&params)).await {
                Ok(list) => {
                    let first = matches!(self.position, Position::Start);
                    let token = list.metadata.continue_.filter(|token| !token.is_empty());
                    self.position = token.map_or(Position::End, Position::After);
                    return Ok(Some(Page { objects: list.items, first }));
                }
                Err(CallError::Answered { code: 410, .. }) if self.restarts < MAX_RESTARTS => {
                    self.restarts += 1;
                    self.position = Position::Start;
                }
                Err(error) if self.versions.len() > 1 && is_of_the_version(&error) => {
                    self.versions.remove(0);
                    self.failed.get_or_insert(error);
                    self.position = Position::Start;
                }
                // The error of the preferred version is more specific than that of the last one.
                Err(error) => return Err(self.failed.take().unwrap_or(error)),
            }
        }
    }
}

/// Whether another version may be readable although this one is not.
fn is_of_the_version(error: &CallError) -> bool {
    matches!(error, CallError::Answered { code: 500.., .. } | CallError::TooSlow { .. })
}
