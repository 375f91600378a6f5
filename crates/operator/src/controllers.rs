//! Starts the controller of a family, and lists the access that all of them need.

use steersman_api::Family as Api;
use steersman_runtime::controller::{self, ControllerContext};
use steersman_runtime::http::Http;
use steersman_runtime::rbac::Rule;
use steersman_runtime::store::served;
use tokio_util::sync::CancellationToken;

use crate::dynamo::{self, Dynamo, RequestOptions};
use crate::installation::{Installation, SecretRules};
use crate::llamastack::observe::server::{PollSchedule, Servers};
use crate::llamastack::oci::Bases;
use crate::llamastack::{self, LlamaStack};
use crate::metrics::FamilyMetrics;
use crate::variant::{self, FleetContext};

/// Families that this version has a controller for.
pub const AVAILABLE: &[Api] = &[Api::Dgdr, Api::Llsd, Api::Va];

/// Rules that every controller needs.
pub fn event_rules() -> Vec<Rule> {
    let why = "publish events on users' objects";
    vec![Rule::namespaced("events.k8s.io", "events", &["create", "get", "patch"], why)]
}

/// Rules of one controller for the namespaces of its objects, without those about Secrets.
pub fn rules(api: Api) -> Vec<Rule> {
    let crds = |other: &[&'static str]| served::rules([&[api.crd_name()], other].concat());
    match api {
        Api::Dgdr => [crds(&[Api::Dgd.crd_name()]), dynamo::rules()].concat(),
        Api::Llsd => [crds(&[llamastack::observe::ROUTES]), llamastack::rules()].concat(),
        Api::Va => [crds(&[variant::observe::LEADER_WORKER_SETS]), variant::rules()].concat(),
        // Dgd is not in `AVAILABLE`.
        Api::Dgd => Vec::new(),
    }
}

/// Rules of one controller about Secrets.
pub fn secret_rules(api: Api) -> SecretRules {
    match api {
        Api::Dgdr => dynamo::secret_rules(),
        Api::Llsd => llamastack::secret_rules(),
        Api::Dgd | Api::Va => SecretRules::default(),
    }
}

/// Rules of one controller for the operator's own namespace.
pub fn own_rules(api: Api) -> Vec<Rule> {
    match api {
        Api::Llsd => llamastack::own_rules(),
        Api::Dgdr | Api::Dgd | Api::Va => Vec::new(),
    }
}

/// Rules of one controller for the operator's own namespace, if its rules for users' namespaces do not cover that.
pub fn settings_rules(api: Api) -> Vec<Rule> {
    match api {
        Api::Va => variant::settings_rules(),
        Api::Dgdr | Api::Dgd | Api::Llsd => Vec::new(),
    }
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
            let labels =
                image_labels.then(|| Bases::of_registries(controller.server.clone(), installation.secrets)).flatten();
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
