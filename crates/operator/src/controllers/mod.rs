//! The controllers: for each family, what a pass over one of its objects reads, decides, writes and reports.
//! Comes in: objects as users change them; goes out: their children and status as they should be.

mod control;
mod driver;
mod dynamo;
mod llamastack;
mod outdated;
mod turns;
mod unreadable;
mod variant;
mod wakes;

use std::sync::Arc;

use steersman_api::Family as Api;
use tokio_util::sync::CancellationToken;

use crate::apply::Recorder;
use crate::client::Server;
use crate::observe::cache::{Cache, Scope};
use crate::observe::llamastack::server::{Rhythm, Servers};
use crate::observe::oci::Bases;
use crate::observe::served;
use crate::observe::variant::Options;
use crate::rbac::{self, Rule};
use crate::reach::Http;
use crate::telemetry::metrics::Metrics;

pub(crate) use driver::as_status;
pub use driver::{Family, Observed, PassError, Passed, Tools, pass, stored_kind};
pub use dynamo::{Dynamo, PROFILING_ROLE, ToldOfRequests, profiling_rules};
pub use llamastack::LlamaStack;
use outdated::Outdated;
use unreadable::LeftAlone;
pub use variant::{Passed as FleetPassed, Rhythm as FleetRhythm, Variants};
pub use wakes::{Place, Wakes};

/// The families whose controller this version has.
pub const AVAILABLE: &[Api] = &[Api::Dgdr, Api::Llsd, Api::Va];

/// What all controllers together do in every namespace.
pub fn rules() -> Vec<Rule> {
    let events = Rule::namespaced(
        "events.k8s.io",
        "events",
        &["create", "get", "patch"],
        "tell as events on users' objects what happened to them",
    );
    [served::rules(), dynamo::rules(), llamastack::rules(), variant::rules(), vec![events]].concat()
}

/// What they do in the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    llamastack::own_rules()
}

/// What the process was told and controllers need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Where the operator runs.
    pub namespace: String,
    /// Its own image, for containers beside users' servers. None: not known.
    pub operator_image: Option<String>,
    /// Where the ConfigMaps with settings of all objects are, if not where they usually are.
    pub config_namespace: Option<String>,
    /// The profiler's image for requests that name none. None: that of this version.
    pub dgdr_default_image: Option<String>,
    pub requests: ToldOfRequests,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            namespace: rbac::NAMESPACE.to_owned(),
            operator_image: None,
            config_namespace: None,
            dgdr_default_image: None,
            requests: ToldOfRequests::default(),
        }
    }
}

impl Told {
    /// Where to look for such a ConfigMap, in this order; `former` is where users of an earlier operator have it.
    pub fn config_namespaces(&self, former: &str) -> Vec<String> {
        match &self.config_namespace {
            Some(given) => vec![given.clone()],
            None if self.namespace == former => vec![self.namespace.clone()],
            None => vec![self.namespace.clone(), former.to_owned()],
        }
    }
}

/// What a controller is given by the process.
#[derive(Clone)]
pub struct Given {
    /// Behind the fence of the term: it writes nothing once the Lease is lost.
    pub server: Server,
    pub scope: Scope,
    /// The name of this process in events.
    pub identity: String,
    pub metrics: Arc<Metrics>,
    pub told: Told,
    /// The way to servers inside the cluster.
    pub inside: Http,
    /// Whether registries are asked for the labels of images.
    pub image_labels: bool,
    /// What the fleet of VariantAutoscalings is told besides.
    pub fleet: Options,
    /// How changes of the fleet become passes.
    pub fleet_rhythm: FleetRhythm,
}

/// Runs one controller until `stop`, and until the passes under way have ended.
pub async fn run(api: Api, given: Given, stop: CancellationToken) {
    match api {
        Api::Llsd => {
            let servers = Servers::new(given.inside.clone(), Rhythm::default());
            let labels = given.image_labels.then(|| Bases::of_registries(given.server.clone())).flatten();
            control::run(LlamaStack::following(&given.told, Some(servers), labels), given, stop).await;
        }
        Api::Dgdr => {
            let family = Dynamo::following(&given.told, given.inside.clone(), given.metrics.clone());
            control::run(family, given, stop).await;
        }
        Api::Va => {
            let rhythm = given.fleet_rhythm;
            variant::run(given, rhythm, stop).await;
        }
        // Not among the available.
        Api::Dgd => {}
    }
}

impl Tools {
    pub fn new(family: &impl Family, server: Server, instance: &str) -> Self {
        let recorder = Recorder::new(server.clone(), family.manager(), instance);
        Self {
            server,
            cache: Arc::new(Cache::new(family.children())),
            recorder,
            wakes: Wakes::default(),
            outdated: Outdated::default(),
            left_alone: LeftAlone::default(),
        }
    }
}
