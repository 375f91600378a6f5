//! Configuration and command lines of the node's programs.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{NODE_NAME, NodeBinaries, PAUSE_IMAGE, cgroup};
use crate::cluster::Cluster;

/// Addresses of pods. They are routed only in the network of the node.
const POD_RANGE: &str = "10.244.0.0/24";

/// Address of the Service of the DNS server, in the range of the API server's flags.
const DNS_ADDRESS: &str = "10.96.0.10";

/// Snapshotters that need a file system or a device of their own.
const DISABLED_PLUGINS: [&str; 4] = [
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.erofs",
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.tracing",
];

/// Arguments of the programs.
pub struct Arguments {
    pub containerd: Vec<String>,
    pub kubelet: Vec<String>,
    pub kube_proxy: Vec<String>,
}

/// The socket of containerd, in a folder that only the node sees: the length of such a path is limited, and that of the cache
/// folder is not.
pub fn socket() -> PathBuf {
    format!("/run/steersman-{}.sock", std::process::id()).into()
}

/// Writes the configuration of all programs to `folder`.
pub fn write_configuration(
    cluster: &Cluster,
    folder: &Path,
    binaries: &NodeBinaries,
    address: Ipv4Addr,
) -> Result<Arguments> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok(path)
    };
    // Pods have no DNS server besides that of the cluster.
    write("resolv.conf", "")?;
    write("cni/10-pods.conflist", &pod_network(folder).to_string())?;
    let containerd = write("containerd.toml", &containerd(folder, binaries))?;

    let authority = &cluster.authority;
    let serving = authority.server(&[NODE_NAME, &address.to_string()])?;
    authority.store("kubelet-server", &serving)?;
    let kubelet = write("kubelet.json", &kubelet(cluster, folder).to_string())?;
    let node_user = format!("system:node:{NODE_NAME}");
    let kubelet_config = write_kubeconfig(cluster, "kubelet", &node_user, Some("system:nodes"))?;

    let proxy_config = write_kubeconfig(cluster, "kube-proxy", "system:kube-proxy", None)?;
    let kube_proxy = write("kube-proxy.json", &kube_proxy(&proxy_config).to_string())?;
    let flag = |name: &str, value: &dyn std::fmt::Display| format!("--{name}={value}");
    Ok(Arguments {
        containerd: vec![flag("config", &containerd.display())],
        kubelet: vec![
            flag("config", &kubelet.display()),
            flag("kubeconfig", &kubelet_config.display()),
            flag("root-dir", &folder.join("kubelet").display()),
            flag("cert-dir", &folder.join("kubelet-pki").display()),
            flag("hostname-override", &NODE_NAME),
            flag("node-ip", &address),
        ],
        kube_proxy: vec![flag("config", &kube_proxy.display())],
    })
}

fn write_kubeconfig(cluster: &Cluster, name: &str, user: &str, group: Option<&str>) -> Result<PathBuf> {
    let path = cluster.folder.join(format!("{name}.kubeconfig"));
    crate::client::write(&path, &cluster.kubeconfig_for(user, group)?)?;
    Ok(path)
}

/// One bridge, whose pods can also reach themselves through a Service.
fn pod_network(folder: &Path) -> Value {
    let addresses = json!({ "type": "host-local", "dataDir": folder.join("cni-addresses"),
        "ranges": [[{ "subnet": POD_RANGE }]], "routes": [{ "dst": "0.0.0.0/0" }] });
    let bridge =
        json!({ "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true, "ipam": addresses });
    json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": [bridge] })
}

fn containerd(folder: &Path, binaries: &NodeBinaries) -> String {
    // A JSON string is also a TOML string.
    let path = |path: PathBuf| json!(path).to_string();
    let plugins = json!(DISABLED_PLUGINS);
    let (root, state) = (path(folder.join("containerd")), path(folder.join("containerd-state")));
    let (grpc, ttrpc) = (path(socket()), path(folder.join("containerd.ttrpc")));
    let runc = path(binaries.containers.path("runc"));
    let (plugin_folder, networks) = (path(binaries.kubernetes.folder().to_owned()), path(folder.join("cni")));
    let pause = json!(PAUSE_IMAGE);
    format!(
        "version = 3
root = {root}
state = {state}
disabled_plugins = {plugins}

[grpc]
address = {grpc}

[ttrpc]
address = {ttrpc}

[plugins.'io.containerd.cri.v1.images']
# The archive of an image has its layers.
discard_unpacked_layers = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = {pause}

[plugins.'io.containerd.cri.v1.runtime']
# Sandboxed machines lack the right to lower these values.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = \"io.containerd.runc.v2\"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = {runc}

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [{plugin_folder}]
conf_dir = {networks}
"
    )
}

fn kubelet(cluster: &Cluster, folder: &Path) -> Value {
    let pki = |name: &str| cluster.authority.file(name);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{}", socket().display()),
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki("ca.pem") },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": pki("kubelet-server.pem"),
        "tlsPrivateKeyFile": pki("kubelet-server-key.pem"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup::path(),
        // Machines with the older control groups work too.
        "failCgroupV1": false,
        "failSwapOn": false,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": folder.join("resolv.conf"),
        // Only kube-proxy changes the rules for packets.
        "makeIPTablesUtilChains": false,
        "podLogsDir": folder.join("pod-logs"),
        "volumePluginDir": folder.join("volume-plugins"),
        // The images of a run are not removed to free disk space, because no registry has them.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "nodeStatusUpdateFrequency": "5s",
    })
}

fn kube_proxy(kubeconfig: &Path) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": { "kubeconfig": kubeconfig },
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": NODE_NAME,
        // The size of the table of connections is a setting of the whole machine.
        "conntrack": { "maxPerCore": 0 },
    })
}
