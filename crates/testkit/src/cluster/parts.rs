//! The command lines of the cluster's programs.

use std::path::Path;

use super::admission;
use super::start::Listen;
use crate::audit;
use crate::pki::Authority;

/// The address range of Services; kubeadm's default.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// Address of the Service of the API server: the first of the range.
pub(super) const API_SERVICE_ADDRESS: &str = "10.96.0.1";

/// Addresses of simulated pods. The range is reserved for benchmarks, so that no real host has these addresses, and
/// EndpointSlices accept it, unlike loopback addresses. Nodes use the lower half of the same block.
const POD_RANGE: &str = "198.19.0.0/16";

pub(super) fn etcd(authority: &Authority, data: &Path, port: u16) -> Vec<String> {
    let pki = |name: &str| authority.file(name).display().to_string();
    vec![
        flag("data-dir", data.display()),
        flag("listen-client-urls", format_args!("https://127.0.0.1:{port}")),
        flag("advertise-client-urls", format_args!("https://127.0.0.1:{port}")),
        // Without this, any user of the machine could bypass the API server.
        flag("client-cert-auth", true),
        flag("trusted-ca-file", pki("ca.pem")),
        flag("cert-file", pki("server.pem")),
        flag("key-file", pki("server-key.pem")),
        // etcd's HTTP gateway is a client of etcd and needs a certificate too.
        flag("client-cert-file", pki("front-proxy.pem")),
        flag("client-key-file", pki("front-proxy-key.pem")),
        flag("listen-peer-urls", "http://127.0.0.1:0"),
        // We hold the port until etcd listens on it.
        flag("socket-reuse-port", true),
        // The data is discarded after the run, so durability would only cost time.
        flag("unsafe-no-fsync", true),
        flag("log-level", "warn"),
    ]
}

pub(super) fn api_server(authority: &Authority, folder: &Path, listen: &Listen) -> Vec<String> {
    let pki = |name: &str| authority.file(name).display().to_string();
    let node = if listen.real_node {
        vec![
            flag("kubelet-client-certificate", pki("kubelet-client.pem")),
            flag("kubelet-client-key", pki("kubelet-client-key.pem")),
            flag("kubelet-certificate-authority", pki("ca.pem")),
            flag("kubelet-preferred-address-types", "InternalIP"),
        ]
    } else {
        // 127.0.0.1 is not allowed as an endpoint, and no program calls the API server through its Service.
        vec![flag("endpoint-reconciler-type", "none")]
    };
    let common = vec![
        flag("etcd-servers", format_args!("https://127.0.0.1:{}", listen.etcd_port)),
        flag("etcd-cafile", pki("ca.pem")),
        flag("etcd-certfile", pki("front-proxy.pem")),
        flag("etcd-keyfile", pki("front-proxy-key.pem")),
        flag("bind-address", listen.address),
        flag("advertise-address", listen.address),
        flag("secure-port", listen.api_port),
        flag("permit-port-sharing", true),
        flag("tls-cert-file", pki("server.pem")),
        flag("tls-private-key-file", pki("server-key.pem")),
        flag("client-ca-file", pki("ca.pem")),
        flag("authorization-mode", "Node,RBAC"),
        flag("anonymous-auth", true),
        flag("service-account-issuer", "https://kubernetes.default.svc"),
        flag("service-account-key-file", pki("service-accounts.pem")),
        flag("service-account-signing-key-file", pki("service-accounts-key.pem")),
        flag("service-cluster-ip-range", SERVICE_RANGE),
        flag("requestheader-client-ca-file", pki("ca.pem")),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("proxy-client-cert-file", pki("front-proxy.pem")),
        flag("proxy-client-key-file", pki("front-proxy-key.pem")),
        flag("admission-control-config-file", folder.join(admission::CONFIG_FILE).display()),
        flag("profiling", false),
        flag("audit-policy-file", folder.join(audit::POLICY_FILE).display()),
        flag("audit-log-path", folder.join(audit::LOG_FILE).display()),
    ];
    common.into_iter().chain(node).collect()
}

pub(super) fn controller_manager(authority: &Authority, kubeconfig: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("leader-elect", false),
        flag("secure-port", 0),
        flag("use-service-account-credentials", true),
        flag("service-account-private-key-file", authority.file("service-accounts-key.pem").display()),
        flag("root-ca-file", authority.file("ca.pem").display()),
        // The defaults (20 and 30) would make the controller manager the bottleneck of every start and burst.
        flag("kube-api-qps", 1000),
        flag("kube-api-burst", 2000),
        // A node that becomes NotReady or Ready is tainted or untainted at once.
        flag("node-monitor-period", "1s"),
    ]
}

pub(super) fn scheduler(kubeconfig: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("leader-elect", false),
        flag("secure-port", 0),
        flag("kube-api-qps", 1000),
        flag("kube-api-burst", 2000),
    ]
}

pub(super) fn kwok(kubeconfig: &Path, stages: &Path) -> Vec<String> {
    vec![
        flag("kubeconfig", kubeconfig.display()),
        flag("config", stages.display()),
        flag("manage-all-nodes", false),
        flag("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake"),
        flag("node-lease-duration-seconds", 40),
        flag("cidr", POD_RANGE),
    ]
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}
