//! The decision for one `LlamaStackDistribution`: a server, its configuration, its storage and how it is reached.
//! Comes in: the object, its live children and what it refers to, as plain data; goes out: the children as they should be,
//! findings, and the object's status.

mod adoption;
mod ca;
pub mod config;
mod configmap;
mod fields;
mod legacy_texts;
pub mod names;
mod network;
mod operator_config;
mod plan;
mod report;
mod resolution;
mod rollout;
mod scaling;
mod seen;
pub mod server;
mod stored_status;
mod texts;
pub mod trouble;
pub mod validate;
mod workload;

pub use ca::CLUSTER as CLUSTER_CA_BUNDLE;
pub use configmap::{KEPT as KEPT_CONFIG_MAPS, mounted as mounted_config_maps};
pub use network::Route;
pub use operator_config::{DefaultPolicy, FORMER_NAMESPACE, Fault, Images, NAME as OPERATOR_CONFIG, OperatorConfig};
pub use plan::{CONFIG_KEY, LabelsWanted, Plan, labels_wanted, plan, referred};
pub use report::report;
pub use resolution::Resolution;
pub use seen::{
    ClaimSeen, ConfigMapSeen, ContainerSeen, DeploymentSeen, FormerSeen, IngressSeen, ObjectSeen, PodSeen,
    ReferenceSeen, ReplicasOwner, RouteSeen, Seen, ServerSeen, Settings, TrustSeen,
};
pub use workload::ANY_USER_ROLE;
