//! The namespaces of a real node, and the link between its network and this machine. A process that does nothing holds them;
//! when it ends, the kernel ends every process in them and removes their mounts and the link.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::NodeBinaries;
use crate::process::Process;
use crate::process_tree::descendants;

/// Folders of system programs. Some are not on the path of every user.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Programs of the system that create the namespaces: `util-linux` and `iproute2`.
const REQUIRED_PROGRAMS: [&str; 4] = ["unshare", "nsenter", "mount", "ip"];

/// The links use addresses of 198.18.0.0/15, which are reserved for benchmarks: no real host has them.
const LINK_COUNT: u32 = 1 << 14;

/// Folders in which programs of the node write below fixed paths, such as `/run/containerd`. They are empty for the node.
const SYSTEM_FOLDERS: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Kernel settings that the kubelet requires or else changes. They hold for the whole machine, so the node sees files with
/// these values in their place.
const KERNEL_SETTINGS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Why a real node cannot run on this machine, if it cannot.
pub fn missing_requirement() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root, to create namespaces and control groups".to_owned());
    }
    let exists = |program: &str| SYSTEM_PATH.split(':').any(|folder| Path::new(folder).join(program).is_file());
    if let Some(program) = REQUIRED_PROGRAMS.into_iter().find(|program| !exists(program)) {
        return Some(format!("it needs the program `{program}`: install util-linux and iproute2"));
    }
    let mut unshare = system_command("unshare");
    unshare.args(["--net", "--mount", "--pid", "--fork", "--mount-proc", "true"]);
    match run(unshare) {
        Ok(()) => super::cgroup::missing_requirement(),
        Err(error) => Some(format!("this machine does not permit namespaces: {error:#}")),
    }
}

pub struct Namespaces {
    /// Runs `unshare`, whose child is the first process of the namespaces.
    holder: Process,
    init: u32,
    address: Ipv4Addr,
}

impl Namespaces {
    /// Creates the namespaces with a link to this machine. `folder` holds their log.
    pub fn create(folder: &Path) -> Result<Self> {
        // The shell collects orphans, as the first process has to.
        let idle = "echo started; while :; do sleep 1000; done";
        let arguments = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c", idle];
        let log = folder.join("namespaces.log");
        let mut holder = Process::start("unshare", Path::new("unshare"), &arguments, folder, log)?;
        while !holder.log_end().contains("started") {
            holder.ensure_running()?;
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let init =
            descendants(holder.id()).into_iter().next().context("the first process of the namespaces has ended")?;
        let mut namespaces = Self { holder, init, address: Ipv4Addr::UNSPECIFIED };
        namespaces.connect()?;
        namespaces.hide_system_folders(folder)?;
        namespaces.shadow_kernel_settings(folder)?;
        Ok(namespaces)
    }

    /// Connects the network with this machine.
    fn connect(&mut self) -> Result<()> {
        let (outer, inner) = free_link(self.init)?;
        let init = self.init.to_string();
        let interface = format!("steer{init}");
        let host = |arguments: &[&str]| {
            let mut command = system_command("ip");
            command.args(arguments);
            run(command)
        };
        let inside = |arguments: &[&str]| {
            let mut command = self.enter();
            command.arg("ip").args(arguments);
            run(command)
        };
        let result = host(&["link", "add", &interface, "type", "veth", "peer", "name", "eth0", "netns", &init])
            .and_then(|()| host(&["address", "add", &format!("{outer}/30"), "dev", &interface]))
            .and_then(|()| host(&["link", "set", &interface, "up"]))
            .and_then(|()| inside(&["link", "set", "lo", "up"]))
            .and_then(|()| inside(&["address", "add", &format!("{inner}/30"), "dev", "eth0"]))
            .and_then(|()| inside(&["link", "set", "eth0", "up"]))
            // A connection to a Service needs a route before kube-proxy changes its destination.
            .and_then(|()| inside(&["route", "add", "default", "via", &outer.to_string()]));
        self.address = inner;
        result.context("cannot connect the network of the node with this machine")
    }

    fn hide_system_folders(&self, folder: &Path) -> Result<()> {
        // A folder that has the cache has to stay visible.
        for system in SYSTEM_FOLDERS.into_iter().filter(|system| !folder.starts_with(system)) {
            let mut command = self.enter();
            command.args(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", system]);
            run(command).with_context(|| format!("cannot hide {system} from the node"))?;
        }
        Ok(())
    }

    fn shadow_kernel_settings(&self, folder: &Path) -> Result<()> {
        for (name, value) in KERNEL_SETTINGS {
            let setting = Path::new("/proc/sys").join(name);
            let current = std::fs::read_to_string(&setting).unwrap_or_default();
            if current.trim() == value {
                continue;
            }
            let file = folder.join(name.replace('/', "."));
            std::fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))?;
            let mut command = self.enter();
            command.arg("mount").arg("--bind").args([&file, &setting]);
            run(command).with_context(|| format!("cannot set {} for the node alone", setting.display()))?;
        }
        Ok(())
    }

    /// The address of the node in its network.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The file that stands for the network namespace.
    pub fn network_file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.init).into()
    }

    /// The path by which this machine finds a file that the node sees at `path`.
    pub fn outer_path(&self, path: &Path) -> PathBuf {
        let inner = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.init.to_string()).join("root").join(inner)
    }

    /// Ids of all processes in the namespaces that no pod has.
    pub fn program_ids(&self) -> impl Iterator<Item = u32> {
        let programs = ["containerd", "kubelet", "kube-proxy", "containerd-shim"];
        descendants(std::process::id()).into_iter().filter(move |id| {
            let name = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            programs.iter().any(|program| name.starts_with(program))
        })
    }

    pub fn ensure_running(&mut self) -> Result<()> {
        self.holder.ensure_running()
    }

    /// A command that runs `program` in the namespaces, with none of the variables of the user.
    pub fn command(&self, binaries: &NodeBinaries, program: &Path, arguments: &[String]) -> Command {
        let joined = |folders: &[PathBuf]| {
            folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
        };
        let containers = binaries.containers.folder().to_owned();
        let path = [&[containers], binaries.system.path.as_slice()].concat();
        let mut command = self.enter();
        command.env("PATH", format!("{}:{SYSTEM_PATH}", joined(&path)));
        if !binaries.system.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", joined(&binaries.system.libraries));
        }
        command.arg(program).args(arguments);
        command
    }

    fn enter(&self) -> Command {
        let mut command = system_command("nsenter");
        command.args(["--target", &self.init.to_string(), "--net", "--mount", "--pid", "--"]);
        command
    }
}

/// The addresses of a link that this machine does not have yet: its outer end, and the node's.
fn free_link(seed: u32) -> Result<(Ipv4Addr, Ipv4Addr)> {
    let link = |number: u32| {
        let base = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + (number % LINK_COUNT) * 4;
        (Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2))
    };
    // An address that this machine does not have cannot be bound.
    let is_free = |(outer, _): &(Ipv4Addr, Ipv4Addr)| UdpSocket::bind((*outer, 0)).is_err();
    (seed..seed + LINK_COUNT).map(link).find(is_free).context("this machine has all addresses of 198.18.0.0/16")
}

fn system_command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", SYSTEM_PATH).stdin(Stdio::null());
    command
}

/// Runs a command that ends at once. The error has its output.
pub fn run(mut command: Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => bail!("cannot run `{name}`: {error}"),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{name}` failed: {}", stderr.trim());
    Ok(())
}
