//! Names and versions of the families: consistent with each other and with the CRDs that upstream projects publish.

use std::collections::BTreeSet;

use steersman_api::{Family, LEGACY_LEASES};

use crate::upstream::{self, Crd};

#[test]
fn family_parses_from_short_name_only() {
    for family in Family::ALL {
        assert_eq!(family.short_name().parse(), Ok(family));
        assert_eq!(family.to_string(), family.short_name());
    }
    for text in ["", "DGDR", " va", "dgdr,va", "VariantAutoscaling"] {
        let error = text.parse::<Family>().unwrap_err().to_string();
        assert_eq!(error, format!("there is no controller {text:?}; the names are dgdr, dgd, llsd, va"));
    }
}

#[test]
fn family_names_are_consistent() {
    for family in Family::ALL {
        assert_eq!(family.crd_name(), format!("{}.{}", family.plural(), family.group()));
        assert_eq!(family.plural(), format!("{}s", family.kind().to_lowercase()));
        assert_eq!(family.served_versions().last(), Some(&family.storage_version()));
    }
    let names: BTreeSet<_> = Family::ALL.map(Family::crd_name).into_iter().collect();
    assert_eq!(names.len(), Family::ALL.len(), "two families share a CRD");
}

#[test]
fn every_family_has_a_legacy_lease() {
    for family in Family::ALL {
        assert!(LEGACY_LEASES.iter().any(|lease| lease.families.contains(&family)), "{family} has no legacy lease");
    }
}

#[test]
fn family_names_match_published_crds() {
    let Some(files) = upstream::files() else { return };
    let cases = [
        (Family::Dgdr, "dynamo/crd-dynamographdeploymentrequests.yaml"),
        (Family::Dgd, "dynamo/crd-dynamographdeployments.yaml"),
        (Family::Llsd, "llamastack/crd-v1alpha2-pr253.yaml"),
        (Family::Llsd, "llamastack/crd-v1alpha2-pr264.yaml"),
        (Family::Va, "variant/crd-b.yaml"),
        (Family::Va, "variant/crd-c.yaml"),
    ];
    for (family, path) in cases {
        let crd = Crd::read(&files.join(path));
        assert_eq!(crd.metadata.name, family.crd_name(), "{path}");
        assert_eq!(crd.spec.group, family.group(), "{path}");
        assert_eq!(crd.spec.names.kind, family.kind(), "{path}");
        assert_eq!(crd.spec.names.plural, family.plural(), "{path}");
        assert_eq!(crd.spec.names.short_names, [family.short_name()], "{path}");
        assert_eq!(crd.served(), family.served_versions(), "{path}");
        assert_eq!(crd.stored(), [family.storage_version()], "{path}");
    }
}

#[test]
fn released_llsd_crd_serves_only_v1alpha1() {
    let Some(files) = upstream::files() else { return };
    let crd = Crd::read(&files.join("llamastack/crd-v1alpha1.yaml"));
    assert_eq!(crd.metadata.name, Family::Llsd.crd_name());
    assert_eq!(crd.served(), [Family::Llsd.served_versions()[0]]);
}
