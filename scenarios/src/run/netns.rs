//! Links by network namespaces: one for each node, veth pairs into one bridge namespace, tbf at both ends of each
//! pair. Nothing is made in the machine's own namespace, so runs do not meet.
//!
//! Names carry the runner's process id: what a killed runner left is recognised and removed by the next.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::relay::LinkShape;
use crate::run::stale;

/// Where `ip netns` keeps its namespaces.
const FOLDER: &str = "/run/netns";
/// The interface in each node's namespace.
pub const INTERFACE: &str = "eth0";
/// tbf drops what would wait longer than this.
const QUEUE_MS: u32 = 400;

/// Why there are no namespaces.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("namespaces need root; run as root, or use --mode relay")]
    NotRoot,
    #[error("cannot run `{command}`: {source}; is iproute2 installed?")]
    Run { command: String, source: io::Error },
    #[error("`{command}` failed: {said}")]
    Failed { command: String, said: String },
    #[error("{nodes} nodes do not fit one bridge; at most 250 do")]
    TooMany { nodes: usize },
}

/// Namespaces of one run; removed when dropped.
#[derive(Debug)]
pub struct Netns {
    made: Vec<String>,
    nodes: usize,
    /// Tells the runs of one process apart.
    run: u32,
}

impl Netns {
    /// Makes a namespace for each of `nodes` nodes.
    pub fn new(nodes: usize, shape: &LinkShape) -> Result<Netns, NetnsError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NetnsError::NotRoot);
        }
        if nodes > 250 {
            return Err(NetnsError::TooMany { nodes });
        }
        remove_stale();
        let mut netns = Netns { made: Vec::new(), nodes, run: NEXT_RUN.fetch_add(1, Ordering::Relaxed) };
        let bridge = netns.add("bridge")?;
        ip(&bridge, "link set lo up\nlink add br0 type bridge\nlink set br0 up\n")?;
        for node in 0..nodes {
            let name = netns.add(&node.to_string())?;
            let batch = format!(
                "link add p{node} type veth peer name {INTERFACE} netns {name}\nlink set p{node} master br0 up\n"
            );
            ip(&bridge, &batch)?;
            let batch = format!(
                "link set lo up\naddr add {}/24 dev {INTERFACE}\nlink set {INTERFACE} up\n",
                netns.address(node)
            );
            ip(&name, &batch)?;
            shape_link("add", &name, INTERFACE, shape)?;
            shape_link("add", &bridge, &format!("p{node}"), shape)?;
        }
        Ok(netns)
    }

    fn add(&mut self, suffix: &str) -> Result<String, NetnsError> {
        let name = format!("{}{}-{suffix}", stale::prefix(), self.run);
        command("ip", &["netns", "add", &name])?;
        self.made.push(name.clone());
        Ok(name)
    }

    /// A node's address on the bridge.
    #[must_use]
    pub fn address(&self, node: usize) -> IpAddr {
        debug_assert!(node < self.nodes);
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, node as u8 + 1))
    }

    /// Gives both directions of a node's link another shape, whatever is on its way; what waits goes on waiting.
    pub fn reshape(&self, node: usize, shape: &LinkShape) -> Result<(), NetnsError> {
        shape_link("change", &self.made[node + 1], INTERFACE, shape)?;
        shape_link("change", &self.made[0], &format!("p{node}"), shape)
    }

    /// The file of a node's namespace.
    #[must_use]
    pub fn namespace(&self, node: usize) -> PathBuf {
        Path::new(FOLDER).join(&self.made[node + 1])
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        for name in self.made.iter().rev() {
            let _ = command("ip", &["netns", "del", name]);
        }
    }
}

static NEXT_RUN: AtomicU32 = AtomicU32::new(0);

/// `verb`: whether the link gets its first shape (`add`) or another one (`change`).
fn shape_link(verb: &str, namespace: &str, interface: &str, shape: &LinkShape) -> Result<(), NetnsError> {
    let rate = format!("{}bit", shape.rate.0.saturating_mul(8));
    let burst = format!("{}b", shape.burst.0);
    let queue = format!("{QUEUE_MS}ms");
    let words = [
        "-n", namespace, "qdisc", verb, "dev", interface, "root", "tbf", "rate", &rate, "burst", &burst,
        "latency", &queue,
    ];
    command("tc", &words)
}

/// Removes namespaces whose runner is gone.
fn remove_stale() {
    let Ok(entries) = std::fs::read_dir(FOLDER) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| stale::is_stale(name)) {
            let _ = command("ip", &["netns", "del", name]);
        }
    }
}

/// Runs several `ip` commands in a namespace.
fn ip(namespace: &str, batch: &str) -> Result<(), NetnsError> {
    let shown = format!("ip -n {namespace} -batch -");
    let run = |source| NetnsError::Run { command: shown.clone(), source };
    let mut child = tool("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(run)?;
    child.stdin.take().expect("piped").write_all(batch.as_bytes()).map_err(run)?;
    let output = child.wait_with_output().map_err(run)?;
    check(shown.clone(), output.status.success(), &output.stderr)
}

fn command(program: &str, words: &[&str]) -> Result<(), NetnsError> {
    let shown = format!("{program} {}", words.join(" "));
    let output = tool(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| NetnsError::Run { command: shown.clone(), source })?;
    check(shown, output.status.success(), &output.stderr)
}

fn check(command: String, success: bool, stderr: &[u8]) -> Result<(), NetnsError> {
    if success {
        return Ok(());
    }
    let said =
        String::from_utf8_lossy(stderr).lines().next().unwrap_or("nothing").chars().take(200).collect();
    Err(NetnsError::Failed { command, said })
}

/// iproute2 lies in a folder that is not on everybody's path.
fn tool(program: &str) -> Command {
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| PathBuf::from(program)))
}

/// Bytes that a process's network namespace has sent on [`INTERFACE`] so far.
#[must_use]
pub fn bytes_sent(process_id: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process_id}/net/dev")).ok()?;
    sent_in(&text)
}

fn sent_in(net_dev: &str) -> Option<u64> {
    let line =
        net_dev.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    // Eight columns of what was received come first.
    line.split_whitespace().nth(8)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_kernels_table() {
        let table = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      200       1    0    0    0     0       0          0
  eth0: 1234567      90    0    0    0     0          0         0  7654321      80    0    0    0     0       0          0
";
        assert_eq!(sent_in(table), Some(7_654_321));
        for broken in ["", "eth0:", "eth0: 1 2 3", "  eth0: 1 2 3 4 5 6 7 8 x 1"] {
            assert_eq!(sent_in(broken), None, "{broken}");
        }
    }
}
