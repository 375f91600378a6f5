//! The observed state of a cluster for the preflight, as plain data.

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::Lookup;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterSnapshot {
    pub now: Timestamp,
    /// The user who made the requests.
    pub user: Lookup<String>,
    pub server: Lookup<ServerVersion>,
    pub families: Vec<ObservedFamily>,
    pub rights: Vec<ObservedRight>,
    pub leases: Vec<ObservedLegacyLease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedFamily {
    pub family: Family,
    /// Known as None if the cluster does not have this CRD.
    pub crd: Lookup<Option<ObservedCrd>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedCrd {
    pub served: Vec<String>,
    pub storage: String,
    pub established: bool,
    pub conversion: Conversion,
    pub objects: Lookup<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Conversion {
    /// The API server rewrites `apiVersion` and nothing else.
    None,
    Service {
        namespace: String,
        name: String,
    },
    Url(String),
}

/// A right that Steersman needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Right {
    pub group: String,
    pub resource: String,
    /// Restricts the right to the object of this name.
    pub name: Option<String>,
    pub verb: String,
    pub reach: Reach,
    /// Purpose, worded to follow "Steersman needs it to".
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    Cluster,
    AllNamespaces,
    Namespace(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedRight {
    #[serde(flatten)]
    pub right: Right,
    pub allowed: Lookup<bool>,
}

/// The Leases with the name of an earlier operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedLegacyLease {
    #[serde(flatten)]
    pub lease: LegacyLease,
    pub found: Lookup<Vec<ObservedLease>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObservedLease {
    pub namespace: String,
    /// Absent or empty once the last holder has released the lease.
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    pub lasts_seconds: Option<i32>,
}
