//! Runs the watches and polls whose results all objects share, and enqueues the objects that a change concerns.

use steersman_reconcile::NamespacedName;
use steersman_runtime::controller::ReconcileContext;
use steersman_runtime::store::Scope;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::operator_config::OperatorConfigWatch;
use super::pods::PodWatch;
use super::references::References;
use super::routes::Routes;
use super::server::Servers;
use crate::installation::{Installation, SecretAccess};
use crate::llamastack::oci::Bases;

pub struct SharedWatches {
    /// The operator's own ConfigMap.
    pub config: OperatorConfigWatch,
    pub references: References,
    /// Whether the cluster has the role of OpenShift; unset until the first reconcile.
    pub any_user: OnceCell<bool>,
    pub pods: PodWatch,
    pub routes: Routes,
    /// `None` if servers are not polled.
    pub servers: Option<Servers>,
    /// `None` if the labels of images are not read.
    pub labels: Option<Bases>,
}

impl SharedWatches {
    /// For single reconciles without watches.
    pub fn new(installation: &Installation) -> Self {
        Self {
            config: OperatorConfigWatch::new(installation.config_namespace().to_owned()),
            references: References::new(installation.secrets),
            any_user: OnceCell::default(),
            pods: PodWatch::default(),
            routes: Routes::default(),
            servers: None,
            labels: None,
        }
    }

    pub fn following(installation: &Installation, servers: Option<Servers>, labels: Option<Bases>) -> Self {
        Self { routes: Routes::followed(), servers, labels, ..Self::new(installation) }
    }

    pub async fn run(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let enqueue = |place| context.queue.enqueue(place);
        let servers = async {
            let Some(servers) = &self.servers else { return };
            servers.run(enqueue, stop.clone()).await;
        };
        tokio::join!(
            self.follow_references(context, scope, stop.clone()),
            self.pods.follow(&context.server, scope, enqueue, stop.clone()),
            self.routes.follow(context, scope, stop.clone()),
            servers,
            self.read_labels(context, stop.clone()),
        );
    }

    async fn follow_references(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let enqueue = |place| context.queue.enqueue(place);
        let References { secrets, config_maps, access } = &self.references;
        let secrets = async {
            if *access == SecretAccess::Watch {
                secrets.follow(&context.server, scope, enqueue).await;
            }
        };
        let referred = config_maps.follow(&context.server, scope, enqueue);
        // Every object refers to at least the ConfigMap of the cluster's certificates.
        let all = || config_maps.objects().into_iter().for_each(enqueue);
        let config = self.config.follow(&context.server, all);
        stop.run_until_cancelled(async { tokio::join!(secrets, referred, config) }).await;
    }

    async fn read_labels(&self, context: &ReconcileContext, stop: CancellationToken) {
        let Some(bases) = &self.labels else { return };
        let enqueue = async {
            loop {
                bases.changed().await.into_iter().for_each(|place| context.queue.enqueue(place));
            }
        };
        tokio::select! { () = bases.run(stop) => {}, () = enqueue => {} }
    }

    pub fn forget(&self, place: &NamespacedName) {
        self.references.forget(place);
        self.pods.forget(place);
        self.routes.forget(place);
        if let Some(servers) = &self.servers {
            servers.forget(place);
        }
        if let Some(bases) = &self.labels {
            bases.forget(&place.namespace, &place.name);
        }
    }
}
