//! Our CRDs against those that their projects publish: every difference is named here, with its reason.

use steersman_api::Family;

use crate::compare::{self, Aim, Named, ours, theirs, version};
use crate::upstream;

#[test]
fn dgdr_equals_the_published_crd() {
    let Some(files) = upstream::files() else { return };
    let (ours, theirs) = (ours(Family::Dgdr), theirs(&files.join("dynamo/crd-dynamographdeploymentrequests.yaml")));
    let reported = Named {
        path: ".status.reported",
        key: "field",
        why: "problems that were reported, by code and object: upstream has the texts of conditions alone",
    };
    for (name, named) in [("v1alpha1", &[][..]), ("v1beta1", &[reported][..])] {
        let (ours, theirs) = (version(&ours, name), version(&theirs, name));
        let mut differences = compare::schemas(ours, theirs, Aim::Equal);
        differences.extend(compare::presentation(ours, theirs));
        compare::assert_named(&format!("dgdr {name}"), &differences, named);
    }
}

#[test]
fn llsd_v1alpha1_equals_the_published_crd() {
    let Some(files) = upstream::files() else { return };
    let (ours, theirs) = (ours(Family::Llsd), theirs(&files.join("llamastack/crd-v1alpha1.yaml")));
    let (ours, theirs) = (version(&ours, "v1alpha1"), version(&theirs, "v1alpha1"));
    let mut differences = compare::schemas(ours, theirs, Aim::Equal);
    differences.extend(compare::presentation(ours, theirs));
    let named = [
        Named {
            path: ".spec.server.podOverrides.volumes[].ephemeral.volumeClaimTemplate.metadata.*",
            key: "field",
            why: "the published schema drops the labels of a volume's template without a word; ours keeps them",
        },
        Named {
            path: ".spec.server.podOverrides.volumes[].projected.sources[].podCertificate.userAnnotations",
            key: "field",
            why: "a field of a later Kubernetes than the published CRD was made with",
        },
    ];
    compare::assert_named("llsd v1alpha1", &differences, &named);
}

#[test]
fn what_the_published_llsd_v1alpha2_accept_is_accepted() {
    let Some(files) = upstream::files() else { return };
    let ours = ours(Family::Llsd);
    let api_key = Named { path: ".spec.providers.*.apiKey", key: "oneOf", why: ONE_FORM };
    let of_pr264: Vec<_> = COMMON.into_iter().chain([api_key]).collect();
    let of_pr253: Vec<_> = COMMON.into_iter().chain(IN_OTHER_WORDS).collect();
    for (file, named) in [("crd-v1alpha2-pr264.yaml", of_pr264), ("crd-v1alpha2-pr253.yaml", of_pr253)] {
        let theirs = theirs(&files.join("llamastack").join(file));
        let (ours, theirs) = (version(&ours, "v1alpha2"), version(&theirs, "v1alpha2"));
        let differences = compare::schemas(ours, theirs, Aim::AcceptsAll);
        compare::assert_named(file, &differences, &named);
    }
}

const ONE_FORM: &str = "stands for the published `required` of name and key, now that there are two forms";
const ONE_FORM_RULE: &str =
    "has(self.secretKeyRef) ? !has(self.name) && !has(self.key) : has(self.name) && has(self.key)";

const COMMON: [Named; 4] = [
    Named { path: ".spec.providers.*.secretRefs{}", key: "oneOf", why: ONE_FORM },
    Named { path: ".spec.storage.kv.password", key: ONE_FORM_RULE, why: ONE_FORM },
    Named { path: ".spec.storage.sql.connectionString", key: ONE_FORM_RULE, why: ONE_FORM },
    Named {
        path: ".spec.networking.tls",
        key: "!has(self.enabled) || !self.enabled || has(self.secretName)",
        why: "pull 264 refuses every object that leaves `enabled` out, pull 253 has no such field: ours refuses less",
    },
];

/// What pull 253 says too, in a different expression.
const IN_OTHER_WORDS: [Named; 3] = [
    Named { path: ".spec", key: "!(has(self.*) && has(self.overrideConfig))", why: "the same four exclusions" },
    Named {
        path: ".spec.storage.kv",
        key: "!has(self.type) || self.type != 'redis' || has(self.endpoint)",
        why: "the published rule needs no `has`, because the type has a default",
    },
    Named {
        path: ".spec.storage.sql",
        key: "!has(self.type) || self.type != 'postgres' || has(self.connectionString)",
        why: "the published rule needs no `has`, because the type has a default",
    },
];
