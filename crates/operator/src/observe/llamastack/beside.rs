//! What is kept up to date beside the passes: nothing of it belongs to a single object.
//! Comes in: what objects refer to, the operator's own ConfigMap, and what pods and servers say; goes out: what passes look
//! at, and which objects should look again.

use futures::{StreamExt, stream};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::operator_config::Config;
use super::pods::Pods;
use super::references::References;
use super::server::Servers;
use crate::controllers::{Place, Tools};
use crate::observe::cache::Scope;

pub struct Beside {
    /// What the operator's ConfigMap says.
    pub config: Config,
    pub references: References,
    /// Whether the cluster has the role of OpenShift; not known until the first pass.
    pub any_user: OnceCell<bool>,
    pub pods: Pods,
    /// None: servers are not asked.
    pub servers: Option<Servers>,
}

impl Beside {
    pub fn new(config: Config, servers: Option<Servers>) -> Self {
        Self {
            config,
            references: References::default(),
            any_user: OnceCell::default(),
            pods: Pods::default(),
            servers,
        }
    }

    pub async fn run(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        let wake = |place| tools.wakes.wake(place);
        let References { secrets, config_maps } = &self.references;
        let changes = stream::select(secrets.follow(&tools.server, scope), config_maps.follow(&tools.server, scope));
        let referred = changes.for_each(|object| {
            wake(object);
            std::future::ready(())
        });
        // Every object refers to a ConfigMap, if only to that of its cluster.
        let all = || config_maps.objects().into_iter().for_each(wake);
        let config = self.config.follow(&tools.server, all);
        let servers = async {
            let Some(servers) = &self.servers else { return };
            servers.run(wake, stop.clone()).await;
        };
        let followed = stop.run_until_cancelled(async { tokio::join!(referred, config) });
        tokio::join!(servers, self.pods.follow(&tools.server, scope, wake, stop.clone()), followed);
    }

    pub fn forget(&self, place: &Place) {
        self.references.forget(place);
        self.pods.forget(place);
        if let Some(servers) = &self.servers {
            servers.forget(place);
        }
    }
}
