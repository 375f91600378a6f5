//! Reads the API server's version, our CRDs and objects, the caller's rights and the leases of earlier operators.

use futures::future::join_all;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition,
};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LEGACY_LEASES, LegacyLease};
use steersman_plan::preflight::{
    ClusterSnapshot, Conversion, ObservedCrd, ObservedFamily, ObservedLease, ObservedLegacyLease, ObservedRight, Reach,
    Right,
};
use steersman_reconcile::Lookup;
use steersman_runtime::client::{CallError, Server};
use steersman_runtime::rbac::Rule;

/// Access reviews in progress at a time, few enough for a busy server.
const CONCURRENCY: usize = 8;

/// The access to the objects of a family.
pub fn rules(family: Family) -> Vec<Rule> {
    let crd = Rule {
        group: "apiextensions.k8s.io",
        resource: "customresourcedefinitions",
        names: vec![family.crd_name()],
        verbs: &["get"],
        namespaced: false,
        why: "read which versions of its APIs the cluster serves, and which webhook converts them",
    };
    vec![crd, Rule::namespaced(family.group(), family.plural(), &["list"], "count existing objects")]
}

/// The access to the Leases of earlier operators.
pub fn lease_rules() -> Vec<Rule> {
    vec![Rule {
        group: "coordination.k8s.io",
        resource: "leases",
        names: LEGACY_LEASES.map(|lease| lease.name).to_vec(),
        verbs: &["list"],
        namespaced: true,
        why: "detect an earlier operator that acts on the same objects",
    }]
}

/// Fails only if the server does not answer the first request; later failures become part of the result.
pub async fn observe(server: &Server, rights: Vec<Right>) -> Result<ClusterSnapshot, CallError> {
    let version = version(server).await?;
    let (user, families, rights, leases) = tokio::join!(
        user(server),
        join_all(Family::ALL.map(|family| observe_family(server, family))),
        stream::iter(rights).map(|right| review(server, right)).buffered(CONCURRENCY).collect(),
        join_all(LEGACY_LEASES.map(|lease| observe_legacy_lease(server, lease))),
    );
    Ok(ClusterSnapshot { now: Timestamp::now(), user, server: version, families, rights, leases })
}

async fn version(server: &Server) -> Result<Lookup<ServerVersion>, CallError> {
    match server.call(server.client.apiserver_version()).await {
        Ok(info) => Ok(version_of(&info)),
        // A user without permission to read the version may still read the rest; other errors mean that this is no API server.
        Err(error @ CallError::Answered { code: 403, .. }) => Ok(Lookup::Unknown(error.to_string())),
        Err(error) => Err(error),
    }
}

/// Some builds leave `major` and `minor` empty, so that `gitVersion` is the second source.
fn version_of(info: &Info) -> Lookup<ServerVersion> {
    match ServerVersion::from_parts(&info.major, &info.minor).or_else(|_| info.git_version.parse()) {
        Ok(version) => Lookup::Known(version),
        Err(error) => Lookup::Unknown(error.to_string()),
    }
}

async fn user(server: &Server) -> Lookup<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(server.client.clone());
    let review = server.call(reviews.create(&PostParams::default(), &SelfSubjectReview::default())).await;
    lookup(review, |review| {
        let name = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
        name.map_or_else(|| Lookup::Unknown("the API server did not name the user".to_owned()), Lookup::Known)
    })
}

/// A failed call is an unknown value.
fn lookup<T, U>(called: Result<T, CallError>, read: impl FnOnce(T) -> Lookup<U>) -> Lookup<U> {
    called.map_or_else(|error| Lookup::Unknown(error.to_string()), read)
}

async fn observe_family(server: &Server, family: Family) -> ObservedFamily {
    let crds: Api<CustomResourceDefinition> = Api::all(server.client.clone());
    let crd = match server.call(crds.get_opt(family.crd_name())).await {
        Ok(None) => Lookup::Known(None),
        Ok(Some(crd)) => {
            let objects = objects(server, family, &crd).await;
            Lookup::Known(Some(observe_crd(&crd, objects)))
        }
        Err(error) => Lookup::Unknown(error.to_string()),
    };
    ObservedFamily { family, crd }
}

fn observe_crd(crd: &CustomResourceDefinition, objects: Lookup<u64>) -> ObservedCrd {
    let versions = &crd.spec.versions;
    let conditions = crd.status.iter().flat_map(|status| status.conditions.iter().flatten());
    ObservedCrd {
        served: versions.iter().filter(|version| version.served).map(|version| version.name.clone()).collect(),
        storage: versions.iter().filter(|version| version.storage).map(|version| version.name.clone()).collect(),
        established: conditions.into_iter().any(|known| known.type_ == "Established" && known.status == "True"),
        conversion: crd.spec.conversion.as_ref().map_or(Conversion::None, conversion),
        objects,
    }
}

fn conversion(conversion: &CustomResourceConversion) -> Conversion {
    let Some(target) = conversion.webhook.as_ref().and_then(|webhook| webhook.client_config.as_ref()) else {
        return Conversion::None;
    };
    match (&target.service, &target.url) {
        (Some(service), _) => Conversion::Service { namespace: service.namespace.clone(), name: service.name.clone() },
        (None, Some(url)) => Conversion::Url(url.clone()),
        (None, None) => Conversion::None,
    }
}

/// Counts the objects without reading all of them: one object's metadata, and `remainingItemCount`.
async fn objects(server: &Server, family: Family, crd: &CustomResourceDefinition) -> Lookup<u64> {
    // The storage version needs no conversion, whose webhook may be gone.
    let served = || crd.spec.versions.iter().filter(|version| version.served);
    let Some(version) = served().find(|version| version.storage).or_else(|| served().next()) else {
        return Lookup::Unknown("the CRD serves no version".to_owned());
    };
    let kind = GroupVersionKind::gvk(family.group(), &version.name, family.kind());
    let resource = ApiResource::from_gvk_with_plural(&kind, family.plural());
    let api: Api<DynamicObject> = Api::all_with(server.client.clone(), &resource);
    lookup(server.call(api.list_metadata(&ListParams::default().limit(1))).await, |list| {
        let more = match (&list.metadata.continue_, list.metadata.remaining_item_count) {
            (_, Some(remaining)) => u64::try_from(remaining).ok(),
            (None, None) => Some(0),
            (Some(_), None) => None,
        };
        match more {
            Some(more) => Lookup::Known(list.items.len() as u64 + more),
            None => Lookup::Unknown("the API server did not count them".to_owned()),
        }
    })
}

async fn review(server: &Server, right: Right) -> ObservedRight {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(server.client.clone());
    let (resource, part) = match right.resource.split_once('/') {
        Some((resource, part)) => (resource.to_owned(), Some(part.to_owned())),
        None => (right.resource.clone(), None),
    };
    let namespace = match &right.reach {
        Reach::Namespace(name) => Some(name.clone()),
        Reach::Cluster | Reach::AllNamespaces => None,
    };
    let question = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(right.group.clone()),
                resource: Some(resource),
                subresource: part,
                namespace,
                name: right.name.clone(),
                verb: Some(right.verb.clone()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    };
    let answered = server.call(reviews.create(&PostParams::default(), &question)).await;
    ObservedRight { right, allowed: lookup(answered, |answered| allowed(answered.status.as_ref())) }
}

/// A denial with an evaluation error is unknown: some authorizers did not answer.
fn allowed(status: Option<&SubjectAccessReviewStatus>) -> Lookup<bool> {
    match status {
        Some(SubjectAccessReviewStatus { allowed: false, evaluation_error: Some(error), .. }) if !error.is_empty() => {
            Lookup::Unknown(error.clone())
        }
        Some(status) => Lookup::Known(status.allowed),
        None => Lookup::Unknown("the API server's answer to the access review has no status".to_owned()),
    }
}

async fn observe_legacy_lease(server: &Server, lease: LegacyLease) -> ObservedLegacyLease {
    let api: Api<Lease> = Api::all(server.client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={}", lease.name));
    let listed = server.call(api.list(&named)).await;
    let found = lookup(listed, |list| Lookup::Known(list.items.into_iter().map(observe_lease).collect()));
    ObservedLegacyLease { lease, found }
}

fn observe_lease(lease: Lease) -> ObservedLease {
    let spec = lease.spec.unwrap_or_default();
    ObservedLease {
        namespace: lease.metadata.namespace.unwrap_or_default(),
        holder: spec.holder_identity,
        renewed: spec.renew_time.map(|time| time.0),
        lasts_seconds: spec.lease_duration_seconds,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn crd(conversion: Value, conditions: Value) -> CustomResourceDefinition {
        let version =
            |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
        let names = json!({"kind": "X", "plural": "xs"});
        let versions = [version("v1", true, false), version("v2", true, true), version("v0", false, false)];
        let spec = json!({"group": "g", "scope": "Namespaced", "names": names, "versions": versions, "conversion": conversion});
        serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": {"conditions": conditions}})).unwrap()
    }

    #[test]
    fn crd_is_reduced_to_observed_fields() {
        let established =
            json!([{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]);
        let seen = observe_crd(&crd(Value::Null, established), Lookup::Known(3));
        assert_eq!(
            seen,
            ObservedCrd {
                served: vec!["v1".into(), "v2".into()],
                storage: "v2".into(),
                established: true,
                conversion: Conversion::None,
                objects: Lookup::Known(3),
            }
        );
        for conditions in [Value::Null, json!([]), json!([{"type": "Established", "status": "False"}])] {
            assert!(!observe_crd(&crd(Value::Null, conditions), Lookup::Known(0)).established);
        }
    }

    #[test]
    fn conversion_webhook_is_recognized() {
        let service = json!({"service": {"namespace": "n", "name": "s"}});
        let webhook = |target: Value| json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": target}});
        let cases = [
            (json!({"strategy": "None"}), Conversion::None),
            (webhook(service), Conversion::Service { namespace: "n".into(), name: "s".into() }),
            (webhook(json!({"url": "https://x/y"})), Conversion::Url("https://x/y".into())),
        ];
        for (given, seen) in cases {
            assert_eq!(observe_crd(&crd(given, Value::Null), Lookup::Known(0)).conversion, seen);
        }
    }

    #[test]
    fn version_comes_from_readable_text() {
        let info = |major: &str, minor: &str, git_version: &str| Info {
            major: major.into(),
            minor: minor.into(),
            git_version: git_version.into(),
            ..Info::default()
        };
        assert_eq!(version_of(&info("1", "33+", "")), Lookup::Known(ServerVersion::new(1, 33)));
        assert_eq!(version_of(&info("", "", "v1.34.1+k3s1")), Lookup::Known(ServerVersion::new(1, 34)));
        let neither = "the API server reports the version \"main\", which is not of the form \"v1.33.5\"";
        assert_eq!(version_of(&info("", "", "main")), Lookup::Unknown(neither.into()));
    }

    #[test]
    fn denial_with_evaluation_error_is_unknown() {
        let status = |allowed, error: Option<&str>| SubjectAccessReviewStatus {
            allowed,
            evaluation_error: error.map(str::to_owned),
            ..SubjectAccessReviewStatus::default()
        };
        assert_eq!(allowed(Some(&status(true, None))), Lookup::Known(true));
        assert_eq!(allowed(Some(&status(true, Some("one authorizer is down")))), Lookup::Known(true));
        assert_eq!(allowed(Some(&status(false, None))), Lookup::Known(false));
        assert_eq!(allowed(Some(&status(false, Some("")))), Lookup::Known(false));
        assert_eq!(allowed(Some(&status(false, Some("role gone")))), Lookup::Unknown("role gone".into()));
        assert!(matches!(allowed(None), Lookup::Unknown(_)));
    }
}
