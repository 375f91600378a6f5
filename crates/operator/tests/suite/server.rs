//! The API server of a cluster, as the operator's own code calls it.
//! Comes in: a cluster and the client of whoever acts; goes out: the same with as long for each call as tests wait at most.

use kube::Client;
use steersman_runtime::client::Server;
use steersman_testkit::{Cluster, wait};

pub fn server(cluster: &Cluster, client: Client) -> Server {
    Server::new(client, cluster.description().api_url.clone(), wait::LIMIT)
}
