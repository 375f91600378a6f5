//! Wraps a client of a test cluster in the `Server` that the operator's code takes. Each call may take as long as tests wait.

use kube::Client;
use steersman_runtime::client::Server;
use steersman_testkit::{Cluster, wait};

pub fn server(cluster: &Cluster, client: Client) -> Server {
    Server::new(client, cluster.description().api_url.clone(), wait::TIMEOUT)
}
