//! Checks by a SubjectAccessReview what a user may do.

use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};

use super::{CallError, Server};

/// Whether the cluster allows the user this access. The fields of `access` that name a user are replaced.
pub async fn is_allowed(server: &Server, user: UserInfo, access: SubjectAccessReviewSpec) -> Result<bool, CallError> {
    let reviews: Api<SubjectAccessReview> = Api::all(server.client.clone());
    let UserInfo { username, groups, uid, extra } = user;
    let spec = SubjectAccessReviewSpec { user: username, groups, uid, extra, ..access };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let answer = server.call(reviews.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
