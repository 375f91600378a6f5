//! The observed state of a cluster for the preflight, as plain data.

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::Lookup;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub now: Timestamp,
    /// The user who made the requests.
    pub user: Lookup<String>,
    pub server: Lookup<ServerVersion>,
    pub families: Vec<FamilySeen>,
    pub rights: Vec<RightSeen>,
    pub leases: Vec<LegacySeen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FamilySeen {
    pub family: Family,
    /// Known as None if the cluster does not have this CRD.
    pub crd: Lookup<Option<CrdSeen>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrdSeen {
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

/// A right that Steersman needs, in every namespace for a namespaced resource.
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
pub struct RightSeen {
    #[serde(flatten)]
    pub right: Right,
    pub allowed: Lookup<bool>,
}

/// The Leases with the name of an earlier operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegacySeen {
    #[serde(flatten)]
    pub lease: LegacyLease,
    pub found: Lookup<Vec<LeaseSeen>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSeen {
    pub namespace: String,
    /// Absent or empty once the last holder has released the lease.
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    pub lasts_seconds: Option<i32>,
}
