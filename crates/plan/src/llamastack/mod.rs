//! The decisions for one `LlamaStackDistribution`: a server, its configuration, its storage and its network.
//!
//! `snapshot`, `validate`, `plan`, `build`, `status` and `names` are as in the other families. `plan` is a folder
//! because `resolve` is private to it; the status is rendered from its result, `resolution`. `config` generates the
//! file that the server reads, `server` interprets the responses of the server, `operator_config` parses the Go
//! operator's ConfigMap with settings for all objects. Plan and status share `stored_status`.

mod annotations;
mod build;
pub mod config;
mod fields;
mod legacy_texts;
pub mod names;
mod operator_config;
mod plan;
pub mod pod_problem;
mod resolution;
mod rules;
mod secret_change;
pub mod server;
mod snapshot;
mod status;
mod stored_status;
pub mod validate;
mod volume;

pub use annotations::{KEEP_VOLUME, PREFIX as ANNOTATION_PREFIX, RESTART_ON_SECRET_CHANGE};
pub use build::ANY_USER_ROLE;
pub use build::ca::CLUSTER_BUNDLE as CLUSTER_CA_BUNDLE;
pub use build::configmap::{RETAINED as RETAINED_CONFIG_MAPS, mounted as mounted_config_maps};
pub use build::network::Route;
pub use config::CONFIG_KEY;
pub use operator_config::{ConfigFault, DefaultPolicy, Images, NAME as OPERATOR_CONFIG, OperatorConfig};
pub use plan::{LabelsWanted, Plan, findings_of, labels_wanted, plan, referred};
pub use resolution::Resolution;
pub use secret_change::pod_secrets;
pub use snapshot::{
    ObservedClaim, ObservedConfigMap, ObservedDeployment, ObservedIngress, ObservedObject, ObservedReference,
    ObservedRoute, ObservedSecret, ObservedServer, ObservedTrust, ReplicasOwner, Settings, Snapshot, V1alpha1Fields,
};
pub use status::status;
pub use volume::deletion_warning;
