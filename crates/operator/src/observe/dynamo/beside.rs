//! What is kept up to date beside the passes: nothing of it belongs to a single request.
//! Comes in: graphs, pods, the cluster's GPUs and what requests refer to; goes out: what passes look at, and which requests should look again.

use std::sync::Arc;

use futures::{StreamExt, stream};
use steersman_plan::dynamo::names;
use tokio_util::sync::CancellationToken;

use super::graphs::Graphs;
use super::hardware::{Hardware, Sources};
use super::pods::{OF_GRAPH, OF_JOB, Pods};
use super::role::Role;
use crate::controllers::{Place, Tools};
use crate::observe::cache::Scope;
use crate::observe::named::{Kind, Named};

pub struct Beside {
    pub secrets: Arc<Named>,
    pub config_maps: Arc<Named>,
    pub graphs: Graphs,
    pub job_pods: Pods,
    pub graph_pods: Pods,
    pub hardware: Hardware,
    pub role: Role,
}

impl Beside {
    pub fn new(hardware: Sources) -> Self {
        Self {
            secrets: Arc::new(Named::new(Kind::Secret, &[names::TOKEN_SECRET])),
            config_maps: Arc::new(Named::new(Kind::ConfigMap, &[])),
            graphs: Graphs::default(),
            job_pods: Pods::new(OF_JOB, names::LABEL_PROFILED),
            graph_pods: Pods::new(OF_GRAPH, OF_GRAPH),
            hardware: Hardware::new(hardware),
            role: Role::default(),
        }
    }

    pub async fn run(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        let server = &tools.server;
        let wake = |place| tools.wakes.wake(place);
        let of_job = |(namespace, job): Place| {
            if let Some(request) = job.strip_prefix(names::JOB_PREFIX) {
                wake((namespace, request.to_owned()));
            }
        };
        let of_graph = |graph: Place| self.graphs.request(&graph).into_iter().for_each(wake);
        tokio::join!(
            self.follow_references(tools, scope, stop.clone()),
            self.graphs.follow(server, scope, wake, stop.clone()),
            self.job_pods.follow(server, scope, of_job, stop.clone()),
            self.graph_pods.follow(server, scope, of_graph, stop.clone()),
            self.hardware.run(server, wake, stop.clone()),
        );
    }

    async fn follow_references(&self, tools: &Tools, scope: &Scope, stop: CancellationToken) {
        let changes =
            stream::select(self.secrets.follow(&tools.server, scope), self.config_maps.follow(&tools.server, scope));
        let referred = changes.for_each(|object| {
            tools.wakes.wake(object);
            std::future::ready(())
        });
        stop.run_until_cancelled(referred).await;
    }

    pub fn forget(&self, place: &Place) {
        self.secrets.forget(place);
        self.config_maps.forget(place);
        self.graphs.forget(place);
        self.hardware.forget(place);
    }
}
