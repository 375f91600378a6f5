//! Runs the watches and polls whose results all requests share, and enqueues the requests that a change concerns.

use std::sync::Arc;

use steersman_plan::dynamo::names;
use steersman_reconcile::NamespacedName;
use steersman_runtime::controller::ReconcileContext;
use steersman_runtime::store::Scope;
use steersman_runtime::store::references::{ReferenceKind, ReferenceStore};
use tokio_util::sync::CancellationToken;

use super::graphs::Graphs;
use super::hardware::{HardwareDiscovery, Sources};
use super::pods::{OF_GRAPH, OF_JOB, PodStore};
use super::role::ProfilingRole;
use crate::installation::SecretAccess;

pub struct RequestWatches {
    pub secrets: Arc<ReferenceStore>,
    pub secret_access: SecretAccess,
    pub config_maps: Arc<ReferenceStore>,
    pub graphs: Graphs,
    pub job_pods: PodStore,
    pub graph_pods: PodStore,
    pub hardware: HardwareDiscovery,
    pub role: ProfilingRole,
}

impl RequestWatches {
    pub fn new(hardware: Sources, secret_access: SecretAccess) -> Self {
        Self {
            secret_access,
            secrets: Arc::new(ReferenceStore::new(ReferenceKind::Secret, &[names::TOKEN_SECRET])),
            config_maps: Arc::new(ReferenceStore::new(ReferenceKind::ConfigMap, &[])),
            graphs: Graphs::default(),
            job_pods: PodStore::new(OF_JOB, names::LABEL_PROFILED),
            graph_pods: PodStore::new(OF_GRAPH, OF_GRAPH),
            hardware: HardwareDiscovery::new(hardware),
            role: ProfilingRole::default(),
        }
    }

    pub async fn run(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let server = &context.server;
        let enqueue = |place| context.queue.enqueue(place);
        let of_job = |NamespacedName { namespace, name: job }: NamespacedName| {
            if let Some(request) = job.strip_prefix(names::JOB_PREFIX) {
                enqueue(NamespacedName::new(namespace, request));
            }
        };
        let of_graph = |graph: NamespacedName| self.graphs.request(&graph).into_iter().for_each(enqueue);
        tokio::join!(
            self.follow_references(context, scope, stop.clone()),
            self.graphs.follow(server, scope, enqueue, stop.clone()),
            self.job_pods.follow(server, scope, of_job, stop.clone()),
            self.graph_pods.follow(server, scope, of_graph, stop.clone()),
            self.hardware.run(server, enqueue, stop.clone()),
        );
    }

    async fn follow_references(&self, context: &ReconcileContext, scope: &Scope, stop: CancellationToken) {
        let enqueue = |object| context.queue.enqueue(object);
        let secrets = async {
            if self.secret_access == SecretAccess::Watch {
                self.secrets.follow(&context.server, scope, enqueue).await;
            }
        };
        let config_maps = self.config_maps.follow(&context.server, scope, enqueue);
        stop.run_until_cancelled(async { tokio::join!(secrets, config_maps) }).await;
    }

    pub fn forget(&self, place: &NamespacedName) {
        self.secrets.forget(place);
        self.config_maps.forget(place);
        self.graphs.forget(place);
        self.hardware.forget(place);
    }
}
