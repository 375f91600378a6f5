//! Everything that the preflight looks at, as plain data.
//! Comes in: answers of the API server, failures among them; goes out: nothing, this is what the plan reads.

use jiff::Timestamp;
use serde::Serialize;
use steersman_api::meta::ServerVersion;
use steersman_api::{Family, LegacyLease};
use steersman_reconcile::Lookup;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Seen {
    pub now: Timestamp,
    /// In whose name the questions were asked.
    pub user: Lookup<String>,
    pub server: Lookup<ServerVersion>,
    pub families: Vec<FamilySeen>,
    pub rights: Vec<RightSeen>,
    pub leases: Vec<LegacySeen>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FamilySeen {
    pub family: Family,
    /// None: the cluster does not have this CRD.
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

/// Who converts between the versions of a CRD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Conversion {
    /// Nobody: the API server rewrites `apiVersion` and nothing else.
    None,
    Service {
        namespace: String,
        name: String,
    },
    Url(String),
}

/// Something that Steersman must be allowed to do, in every namespace where the resource has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Right {
    pub group: String,
    pub resource: String,
    /// Only the object of this name; None: every object.
    pub name: Option<String>,
    pub verb: String,
    pub reach: Reach,
    /// What for, as it follows "Steersman needs it to".
    pub why: String,
}

/// Where a right is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// On what belongs to no namespace.
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

/// The Leases that bear the name of one earlier operator's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegacySeen {
    #[serde(flatten)]
    pub lease: LegacyLease,
    pub found: Lookup<Vec<LeaseSeen>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSeen {
    pub namespace: String,
    /// None or empty: given up by its last holder.
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    pub lasts_seconds: Option<i32>,
}
