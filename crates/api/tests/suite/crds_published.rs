//! Our CRDs against the CRDs that upstream projects publish. Every difference is listed here with its reason.

use steersman_api::Family;

use crate::compare::{self, Compatibility, ExpectedDifference, our_crd, published_crd, version};
use crate::upstream;

#[test]
fn dgdr_equals_published_crd() {
    let Some(files) = upstream::files() else { return };
    let (ours, theirs) =
        (our_crd(Family::Dgdr), published_crd(&files.join("dynamo/crd-dynamographdeploymentrequests.yaml")));
    let added = [
        ExpectedDifference {
            path: ".status.reported",
            key: "field",
            why: "reported problems by code and object; upstream only has the texts of conditions",
        },
        ExpectedDifference {
            path: ".status.lastRetry",
            key: "field",
            why: "the retry annotation that the current attempt was started with; upstream has no retry",
        },
        ExpectedDifference { path: ".status.summary", key: "field", why: "one short line for the column Message" },
        ExpectedDifference {
            path: "",
            key: "additionalPrinterColumns",
            why: "the column Message shows status.summary; upstream's whole message has up to 400 characters",
        },
    ];
    for (name, expected) in [("v1alpha1", &[][..]), ("v1beta1", &added[..])] {
        let (ours, theirs) = (version(&ours, name), version(&theirs, name));
        let mut differences = compare::schemas(ours, theirs, Compatibility::Equal);
        differences.extend(compare::presentation(ours, theirs));
        compare::assert_only_expected(&format!("dgdr {name}"), &differences, expected);
    }
}

#[test]
fn llsd_v1alpha1_equals_published_crd() {
    let Some(files) = upstream::files() else { return };
    let (ours, theirs) = (our_crd(Family::Llsd), published_crd(&files.join("llamastack/crd-v1alpha1.yaml")));
    let (ours, theirs) = (version(&ours, "v1alpha1"), version(&theirs, "v1alpha1"));
    let mut differences = compare::schemas(ours, theirs, Compatibility::Equal);
    differences.extend(compare::presentation(ours, theirs));
    let expected = [
        ExpectedDifference {
            path: ".spec.server.podOverrides.volumes[].ephemeral.volumeClaimTemplate.metadata.*",
            key: "field",
            why: "the published schema silently drops the labels of a volume's template; ours keeps them",
        },
        ExpectedDifference {
            path: ".spec.server.podOverrides.volumes[].projected.sources[].podCertificate.userAnnotations",
            key: "field",
            why: "a field of a later Kubernetes version than the published CRD was generated with",
        },
    ];
    compare::assert_only_expected("llsd v1alpha1", &differences, &expected);
}

#[test]
fn llsd_v1alpha2_accepts_what_published_crds_accept() {
    let Some(files) = upstream::files() else { return };
    let ours = our_crd(Family::Llsd);
    let api_key = ExpectedDifference { path: ".spec.providers.*.apiKey", key: "oneOf", why: TWO_FORMS_REASON };
    let for_pr264: Vec<_> = COMMON_DIFFERENCES.into_iter().chain([api_key]).collect();
    let for_pr253: Vec<_> = COMMON_DIFFERENCES.into_iter().chain(EQUIVALENT_RULES).collect();
    for (file, expected) in [("crd-v1alpha2-pr264.yaml", for_pr264), ("crd-v1alpha2-pr253.yaml", for_pr253)] {
        let theirs = published_crd(&files.join("llamastack").join(file));
        let (ours, theirs) = (version(&ours, "v1alpha2"), version(&theirs, "v1alpha2"));
        let differences = compare::schemas(ours, theirs, Compatibility::AcceptsAll);
        compare::assert_only_expected(file, &differences, &expected);
    }
}

const TWO_FORMS_REASON: &str = "replaces the published `required` of name and key, because there are two forms now";
const TWO_FORMS_RULE: &str =
    "has(self.secretKeyRef) ? !has(self.name) && !has(self.key) : has(self.name) && has(self.key)";

const COMMON_DIFFERENCES: [ExpectedDifference; 4] = [
    ExpectedDifference { path: ".spec.providers.*.secretRefs{}", key: "oneOf", why: TWO_FORMS_REASON },
    ExpectedDifference { path: ".spec.storage.kv.password", key: TWO_FORMS_RULE, why: TWO_FORMS_REASON },
    ExpectedDifference { path: ".spec.storage.sql.connectionString", key: TWO_FORMS_RULE, why: TWO_FORMS_REASON },
    ExpectedDifference {
        path: ".spec.networking.tls",
        key: "!has(self.enabled) || !self.enabled || has(self.secretName)",
        why: "pull 264 refuses every object that leaves `enabled` out, pull 253 has no such field: ours refuses less",
    },
];

/// Rules that pull 253 has too, with a different expression.
const EQUIVALENT_RULES: [ExpectedDifference; 3] = [
    ExpectedDifference {
        path: ".spec",
        key: "!(has(self.*) && has(self.overrideConfig))",
        why: "the same four exclusions",
    },
    ExpectedDifference {
        path: ".spec.storage.kv",
        key: "!has(self.type) || self.type != 'redis' || has(self.endpoint)",
        why: "the published rule needs no `has`, because the type has a default",
    },
    ExpectedDifference {
        path: ".spec.storage.sql",
        key: "!has(self.type) || self.type != 'postgres' || has(self.connectionString)",
        why: "the published rule needs no `has`, because the type has a default",
    },
];
