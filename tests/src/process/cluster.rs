//! A cluster of real node processes on this machine, from an imported dataset to running trainers.

use super::binaries::binary;
use super::child::{Child, Exit};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// No step of a test takes nearly as long on a machine that works.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a cluster is made of. There is one scheduler beside.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub storage_nodes: usize,
    pub replicas: u32,
    /// Per part the storage nodes that hold it, by their numbers; empty: round robin over all, as many as `replicas`.
    pub parts: Vec<Vec<usize>>,
    pub compute_nodes: usize,
    pub cache: String,
    pub policy: String,
    /// Announced, unreleased minibatches of a trainer.
    pub credits: u32,
    pub security: Security,
    pub placement: Placement,
    pub memory: Memory,
    /// More of the topology's `[limits]`.
    pub limits: String,
    /// The topology's `[advisor]`, if any.
    pub advisor: String,
    /// Nodes panic where they are ordered to.
    pub test_faults: bool,
    /// Of the topology's `[defaults]`.
    pub cores: String,
}

impl ClusterOptions {
    fn number_of_parts(&self) -> usize {
        if self.parts.is_empty() { self.storage_nodes } else { self.parts.len() }
    }
}

/// Whether nodes have identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    LoopbackClear,
    Keys,
}

/// Whether nodes count as processes of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Every part that a compute node's trainers need goes over the wire.
    Apart,
    /// Compute nodes map the parts of the storage nodes.
    Shared,
}

/// How the parts come to the storage nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// They are there before the nodes start.
    InPlace,
    /// The test pushes them.
    Pushed,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        ClusterOptions {
            storage_nodes: 2,
            replicas: 1,
            parts: Vec::new(),
            compute_nodes: 1,
            cache: "64KiB".to_owned(),
            policy: "rudder".to_owned(),
            credits: 12,
            security: Security::LoopbackClear,
            placement: Placement::InPlace,
            memory: Memory::Apart,
            limits: String::new(),
            advisor: String::new(),
            test_faults: false,
            cores: "cores = \"shared\"\n".to_owned(),
        }
    }
}

/// A cluster; its processes end with it.
pub struct Cluster {
    directory: TempDir,
    names: Vec<String>,
    nodes: BTreeMap<String, Child>,
    test_faults: bool,
}

impl Cluster {
    /// Imports the dataset, writes the topology, starts nothing.
    ///
    /// # Panics
    /// If a command fails.
    #[must_use]
    pub fn prepare(options: &ClusterOptions) -> Self {
        let directory = TempDir::new().expect("a folder for the test");
        let storage = (0..options.storage_nodes).map(|n| format!("s{n}"));
        let compute = (0..options.compute_nodes).map(|n| format!("c{n}"));
        let names = std::iter::once("sched".to_owned()).chain(storage).chain(compute).collect();
        let test_faults = options.test_faults;
        let cluster = Cluster { directory, names, nodes: BTreeMap::new(), test_faults };
        std::fs::write(cluster.topology(), cluster.topology_text(options)).expect("the topology is written");
        let dataset = cluster.dataset();
        let parts = options.number_of_parts().to_string();
        let import = ["import", "generate:rmat:vertices=3000,edges=24000,dim=16,seed=7", path_text(&dataset)];
        run("import", rudder(&import).args(["--parts", &parts, "--rows-per-block", "4"]));
        if options.security == Security::Keys {
            run("keys", &mut rudder(&["keys", "init", "--topology", path_text(&cluster.topology())]));
        }
        for node in cluster.names.iter().filter(|name| name.starts_with('s') && *name != "sched") {
            let held = cluster.path("storage").join(node);
            std::fs::create_dir_all(&held).expect("a storage folder");
            if options.placement == Placement::InPlace {
                std::os::unix::fs::symlink(&dataset, held.join("tiny")).expect("a link");
            }
        }
        cluster
    }

    /// Prepares and starts all nodes.
    #[must_use]
    pub fn start(options: &ClusterOptions) -> Self {
        let mut cluster = Cluster::prepare(options);
        for node in cluster.names.clone() {
            cluster.start_node(&node);
        }
        cluster
    }

    fn topology_text(&self, options: &ClusterOptions) -> String {
        let ports = free_addresses(1 + 2 * options.storage_nodes + options.compute_nodes);
        let mut ports = ports.into_iter();
        let mut port = || ports.next().expect("as many as asked for");
        let mut text = String::new();
        if options.security == Security::Keys {
            text += "keys = \"keys\"\n";
        }
        text += &format!("[defaults]\n{}storage_directory = \"storage/{{name}}\"\n", options.cores);
        if options.memory == Memory::Shared {
            text += "machine = \"here\"\n";
        }
        text += "trainer_socket = \"{name}.sock\"\n";
        text += &format!(
            "cache = \"{}\"\npolicy = \"{}\"\ncredits = {}\n",
            options.cache, options.policy, options.credits
        );
        for name in &self.names {
            text += &format!("[[nodes]]\nname = \"{name}\"\ncontrol = \"{}\"\n", port());
            text += match name.as_bytes() {
                b"sched" => "roles = [\"scheduler\"]\n".to_owned(),
                [b's', ..] => format!("roles = [\"storage\"]\ndata = \"{}\"\n", port()),
                _ => "roles = [\"compute\"]\n".to_owned(),
            }
            .as_str();
        }
        text += "[[datasets]]\nname = \"tiny\"\ndirectory = \"tiny\"\n";
        text += &format!("parts = {}\n", options.number_of_parts());
        if options.parts.is_empty() {
            text += &format!("placement = \"round_robin\"\nreplicas = {}\n", options.replicas);
        }
        for (part, nodes) in options.parts.iter().enumerate() {
            let nodes: Vec<_> = nodes.iter().map(|n| format!("s{n}")).collect();
            text += &format!("[[parts]]\npart = {part}\nnodes = {nodes:?}\n");
        }
        text += "[default_link]\nbandwidth = \"1Gbit/s\"\n";
        // A peer that is gone should not hold a test up for long.
        text += "[limits]\ntransfer_timeout = \"2s\"\nheartbeat_timeout = \"2s\"\n";
        text += &options.limits;
        text += &options.advisor;
        text
    }

    /// Something in the cluster's folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    #[must_use]
    pub fn topology(&self) -> PathBuf {
        self.path("cluster.toml")
    }

    #[must_use]
    pub fn dataset(&self) -> PathBuf {
        self.path("tiny")
    }

    /// Starts a node and returns its ready line.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_node(&mut self, node: &str) -> Value {
        self.start_node_with(node, &self.topology())
    }

    /// As [`Cluster::start_node`], with a topology file of its own.
    ///
    /// # Panics
    /// If it does not become ready.
    pub fn start_node_with(&mut self, node: &str, topology: &Path) -> Value {
        let mut command = Command::new(binary("rudder-node"));
        command.arg("--topology").arg(topology).args(["--node", node, "--json"]);
        let mut child = if self.test_faults {
            Child::start_with_orders(node, command.arg("--test-faults"))
        } else {
            Child::start(node, &mut command)
        };
        let ready = child.await_line(|line| event(line, "ready"), PATIENCE);
        self.nodes.insert(node.to_owned(), child);
        ready
    }

    /// A running node.
    ///
    /// # Panics
    /// If the node does not run.
    pub fn node(&mut self, node: &str) -> &mut Child {
        self.nodes.get_mut(node).expect("a running node")
    }

    /// Ends a node without warning.
    pub fn kill_node(&mut self, node: &str) -> Exit {
        self.nodes.remove(node).expect("a running node").kill()
    }

    /// What a node says in `rudder tree`.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn status(&self, node: &str) -> Value {
        let topology = self.topology();
        let tree = ["tree", "--topology", path_text(&topology), "--node", node, "--json"];
        let said = run("tree", &mut rudder(&tree)).stdout.join("\n");
        let mut trees: Vec<Value> = serde_json::from_str(&said).expect("a list of trees");
        trees.pop().expect("one node")
    }

    /// Asks a node to stop.
    pub fn stop_node(&mut self, node: &str, deadline: Duration) -> Exit {
        self.nodes.remove(node).expect("a running node").terminate(deadline)
    }

    /// Running nodes.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Starts a reference trainer that checks every byte. What is not among the arguments is small.
    #[must_use]
    pub fn trainer(&self, node: &str, arguments: &[&str]) -> Child {
        let topology = self.topology();
        let dataset = self.dataset();
        let mut command = rudder(&["trainer", "--topology", path_text(&topology), "--node", node]);
        command.args(["--dataset", path_text(&dataset), "--verify", "--json-events"]);
        for small in [["--compute-ms", "2"], ["--seeds", "8"], ["--fanout", "4,3"], ["--window", "6"]] {
            if !arguments.contains(&small[0]) {
                command.args(small);
            }
        }
        command.args(arguments);
        Child::start(&format!("trainer of {node}"), &mut command)
    }
}

/// A command of the operator's program.
#[must_use]
pub fn rudder(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("rudder"));
    command.args(arguments);
    command
}

/// Runs a command to its end.
///
/// # Panics
/// If it fails.
pub fn run(what: &str, command: &mut Command) -> Exit {
    let exit = Child::start(what, command).wait(PATIENCE);
    assert!(
        exit.status.success(),
        "{what}: {}\n{}\n{}",
        exit.status,
        exit.stdout.join("\n"),
        exit.stderr.join("\n")
    );
    exit
}

/// The JSON of a line, if it is the event.
#[must_use]
pub fn event(line: &str, name: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value["event"] == name).then_some(value)
}

/// Waits until a trainer has done so many steps.
pub fn await_steps(trainer: &mut Child, steps: u64) {
    trainer.await_line(
        |line| event(line, "step").filter(|step| step["minibatch"].as_u64() >= Some(steps)),
        PATIENCE,
    );
}

/// Waits for a trainer's end.
///
/// # Panics
/// If it failed, or a byte was wrong.
pub fn finishes(trainer: Child) -> Value {
    let exit = trainer.wait(PATIENCE);
    let said = || format!("{}\n{}", exit.stdout.join("\n"), exit.stderr.join("\n"));
    assert!(exit.status.success(), "{}\n{}", exit.status, said());
    let finished = exit.stdout.iter().rev().find_map(|line| event(line, "finished"));
    let finished = finished.unwrap_or_else(|| panic!("no finished line\n{}", said()));
    assert_eq!(finished["bytes_wrong"], 0, "{}", said());
    finished
}

/// Addresses on loopback that nobody listens on. Below the ports that the kernel hands out by itself: such a port could
/// be taken by anybody's connection before a node binds it. Each process of tests begins elsewhere and goes on from there.
///
/// # Panics
/// If there are not so many.
#[must_use]
pub fn free_addresses(count: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    let first = std::process::id().wrapping_mul(97);
    let address = |_| {
        let port =
            PORTS.start + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u32;
        let address = SocketAddr::from(([127, 0, 0, 1], port as u16));
        TcpListener::bind(address).is_ok().then_some(address)
    };
    let found: Vec<_> = PORTS.filter_map(address).take(count).collect();
    assert_eq!(found.len(), count, "free ports");
    found
}

/// # Panics
/// If the path is not UTF-8.
#[must_use]
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}
