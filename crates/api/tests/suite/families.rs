//! Names and versions of the families, against each other and against the CRDs that their projects publish.

use std::collections::BTreeSet;

use steersman_api::{Family, LEGACY_LEASES};

use crate::upstream::{self, Crd};

#[test]
fn a_family_is_found_by_its_short_name_and_by_nothing_else() {
    for family in Family::ALL {
        assert_eq!(family.short_name().parse(), Ok(family));
        assert_eq!(family.to_string(), family.short_name());
    }
    for given in ["", "DGDR", " va", "dgdr,va", "VariantAutoscaling"] {
        let error = given.parse::<Family>().unwrap_err().to_string();
        assert_eq!(error, format!("there is no controller {given:?}; the names are dgdr, dgd, llsd, va"));
    }
}

#[test]
fn the_facts_of_a_family_agree_with_each_other() {
    for family in Family::ALL {
        assert_eq!(family.crd_name(), format!("{}.{}", family.plural(), family.group()));
        assert_eq!(family.plural(), format!("{}s", family.kind().to_lowercase()));
        assert_eq!(family.served_versions().last(), Some(&family.storage_version()));
    }
    let names: BTreeSet<_> = Family::ALL.map(Family::crd_name).into_iter().collect();
    assert_eq!(names.len(), Family::ALL.len(), "two families share a CRD");
}

#[test]
fn every_family_knows_the_lease_of_its_earlier_operator() {
    for family in Family::ALL {
        assert!(LEGACY_LEASES.iter().any(|lease| lease.families.contains(&family)), "{family} has no legacy lease");
    }
}

#[test]
fn the_facts_equal_the_published_crds() {
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
fn the_last_released_llama_stack_crd_has_only_the_older_version() {
    let Some(files) = upstream::files() else { return };
    let crd = Crd::read(&files.join("llamastack/crd-v1alpha1.yaml"));
    assert_eq!(crd.metadata.name, Family::Llsd.crd_name());
    assert_eq!(crd.served(), [Family::Llsd.served_versions()[0]]);
}
