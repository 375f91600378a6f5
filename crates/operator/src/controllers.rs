//! Starts the controller of a family, and lists the access that all of them need.

use steersman_api::Family as Api;
use steersman_runtime::controller::{self, ControllerContext};
use steersman_runtime::http::Http;
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::served;
use tokio_util::sync::CancellationToken;

use crate::dynamo::{self, Dynamo, RequestOptions};
use crate::installation::Installation;
use crate::llamastack::observe::server::{PollSchedule, Servers};
use crate::llamastack::oci::Bases;
use crate::llamastack::{self, LlamaStack};
use crate::metrics::FamilyMetrics;
use crate::variant::{self, FleetContext};

/// Families that this version has a controller for.
pub const AVAILABLE: &[Api] = &[Api::Dgdr, Api::Llsd, Api::Va];

/// Rules for every namespace.
pub fn rules() -> Vec<Rule> {
    let why = "publish events on users' objects";
    let events = Rule::namespaced("events.k8s.io", "events", &["create", "get", "patch"], why);
    let optional = [llamastack::observe::ROUTES, variant::observe::LEADER_WORKER_SETS];
    let crds = Api::ALL.map(Api::crd_name).into_iter().chain(optional).collect();
    [served::rules(crds), dynamo::rules(), llamastack::rules(), variant::rules(), vec![events]].concat()
}

/// Rules for the operator's own namespace.
pub fn own_rules() -> Vec<Rule> {
    llamastack::own_rules()
}

#[derive(Clone)]
pub struct OperatorContext {
    pub controller: ControllerContext,
    pub metrics: FamilyMetrics,
    pub installation: Installation,
    /// Client for servers inside the cluster.
    pub inside: Http,
    pub requests: RequestOptions,
    /// Whether the labels of images are read from registries.
    pub image_labels: bool,
    pub fleet: variant::observe::Options,
    pub fleet_debounce: variant::DebounceConfig,
}

/// Runs one controller until `stop`, and until the reconciles in progress have ended.
pub async fn run(api: Api, context: OperatorContext, stop: CancellationToken) {
    let OperatorContext { controller, metrics, installation, inside, requests, image_labels, fleet, fleet_debounce } =
        context;
    match api {
        Api::Llsd => {
            let servers = Servers::new(inside, PollSchedule::default());
            let labels = image_labels.then(|| Bases::of_registries(controller.server.clone())).flatten();
            let reconciler = LlamaStack::following(&installation, Some(servers), labels);
            controller::run(reconciler, controller, stop).await;
        }
        Api::Dgdr => {
            let reconciler = Dynamo::following(&installation, &requests, inside, metrics.requests);
            controller::run(reconciler, controller, stop).await;
        }
        Api::Va => {
            let context = FleetContext { controller, installation, options: fleet, gauges: metrics.fleet };
            variant::run(context, fleet_debounce, stop).await;
        }
        // Dgd is not in `AVAILABLE`.
        Api::Dgd => {}
    }
}
