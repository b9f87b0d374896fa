//! The daemon as a process: how it starts, refuses to start, is tested for faults, and stops.

use rudder_client::trainer_protocol::{Hello, ToNode};
use rudder_graph::manifest::{FORMAT_VERSION, FileSpec};
use rudder_graph::{Dtype, GraphSpec, Manifest, TableSpec};
use rudder_topology::{DatasetName, JobId, TableName, TrainerRank};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rudder-node"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A directory with a topology of one storage and one compute node on free ports, and the dataset's manifest.
struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let site = Site { directory: tempfile::tempdir().unwrap() };
        let dataset = site.path("data/tiny");
        std::fs::create_dir_all(&dataset).unwrap();
        std::fs::write(dataset.join("dataset.toml"), manifest().to_toml()).unwrap();
        site.write_topology("127.0.0.1:0", "16KiB");
        site
    }

    fn write_topology(&self, data: &str, cache: &str) {
        let text = format!(
            r#"
[defaults]
cores = "shared"
[default_link]
bandwidth = "1Gbit/s"
latency = "100us"
[[nodes]]
name = "s0"
machine = "m0"
roles = ["storage"]
control = "127.0.0.1:0"
data = "{data}"
storage_directory = "stored"
storage_mode = "memory"
[[nodes]]
name = "c0"
machine = "m1"
roles = ["compute"]
control = "127.0.0.1:0"
trainer_socket = "c0.sock"
cache = "{cache}"
policy = "rudder"
[[datasets]]
name = "tiny"
directory = "data/tiny"
parts = 1
placement = "round_robin"
"#
        );
        std::fs::write(self.path("cluster.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, node: &str) -> Command {
        let mut command = binary();
        command.arg("--topology").arg(self.path("cluster.toml")).args(["--node", node, "--json"]);
        command
    }

    fn start(&self, node: &str, arguments: &[&str]) -> Running {
        Running::start(self.command(node).args(arguments))
    }

    /// Starts a node that must not start; its one sentence.
    fn refused(&self, node: &str) -> String {
        refused(&mut self.command(node))
    }
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "it started: {text}");
    assert!(output.stdout.is_empty(), "no ready line without being ready");
    text
}

fn manifest() -> Manifest {
    let table = TableSpec {
        name: TableName::new("features").unwrap(),
        dim: 16,
        dtype: Dtype::F32,
        rows_per_block: 1,
        row_offsets: vec![0, 100],
    };
    let mut manifest = Manifest {
        format: FORMAT_VERSION,
        name: DatasetName::new("tiny").unwrap(),
        vertices: 100,
        edges: 0,
        digest: String::new(),
        part_offsets: vec![0, 100],
        graphs: vec![GraphSpec { name: TableName::new("edges").unwrap(), edges: 0 }],
        tables: vec![table],
        files: vec![],
        notes: vec![],
    };
    let file = |path| FileSpec { path, bytes: 1, digest: "0".repeat(64) };
    manifest.files = manifest.required_files().into_iter().map(file).collect();
    manifest.seal();
    manifest
}

/// A node that runs; killed when the test fails.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    ready: Value,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that passed has waited for it already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Running {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("{error}: {line:?}; {text}")
        });
        Running { child, out, ready }
    }

    fn order(&mut self) -> &mut ChildStdin {
        self.child.stdin.as_mut().unwrap()
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.unwrap().success());
    }

    /// Its last line, its exit status and what it logged.
    fn end(mut self) -> (Value, ExitStatus, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        let status = self.child.wait().unwrap();
        let last = rest.lines().last().unwrap_or_else(|| panic!("no stopped line; {log}"));
        (serde_json::from_str(last).unwrap(), status, log)
    }
}

fn data_port(running: &Running) -> String {
    running.ready["data"].as_str().unwrap().to_owned()
}

fn hello() -> Vec<u8> {
    let dataset = DatasetName::new("tiny").unwrap();
    let hello = Hello { job: JobId(0), rank: TrainerRank(0), dataset, digest: String::new() };
    let mut frame = vec![];
    ToNode::Hello(hello).encode(&mut frame);
    frame
}

/// Connects as a trainer and reads the first byte of the welcome.
fn greet(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&hello()).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

#[test]
fn a_storage_node_without_its_part_says_so_and_stops_on_sigterm() {
    let site = Site::new();
    let node = site.start("s0", &[]);
    assert_eq!(node.ready["event"], "ready");
    assert_eq!(node.ready["parts"]["present"], 0);
    assert_eq!(node.ready["parts"]["missing"][0], "tiny/P0");
    assert!(!node.ready["control"].as_str().unwrap().ends_with(":0"));
    node.signal("TERM");
    let (stopped, status, log) = node.end();
    assert!(status.success(), "{log}");
    assert_eq!(stopped["event"], "stopped");
    for key in ["bytes_demand", "bytes_prefetch", "bytes_protocol"] {
        assert_eq!(stopped["statistics"][key], 0, "{key}");
    }
    assert!(stopped["statistics"].get("rows_wanted").is_none());
}

#[test]
fn a_compute_node_serves_waits_for_storage_and_cleans_up_on_sigint() {
    let site = Site::new();
    // Nobody listens there; the node goes on trying and serves trainers meanwhile.
    let node = site.start("c0", &["--peer", "s0=127.0.0.1:1", "--backend", "pread"]);
    assert_eq!(node.ready["backend"], "pread");
    let socket = PathBuf::from(node.ready["trainer_socket"].as_str().unwrap());
    let mut trainer = greet(&socket);
    node.signal("INT");
    let mut rest = vec![];
    trainer.read_to_end(&mut rest).unwrap();
    let (stopped, status, log) = node.end();
    assert!(status.success(), "{log}");
    assert!(!socket.exists());
    for key in
        ["rows_wanted", "rows_resident", "rows_demand", "rows_prefetched", "prefetched_used", "bypasses"]
    {
        assert_eq!(stopped["statistics"][key], 0, "{key}");
    }
}

#[test]
fn a_killed_nodes_socket_file_is_replaced_and_a_live_ones_is_not() {
    let site = Site::new();
    let first = site.start("c0", &["--peer", "s0=127.0.0.1:1"]);
    let socket = PathBuf::from(first.ready["trainer_socket"].as_str().unwrap());
    let text = site.refused("c0");
    assert!(text.contains("a live process already serves trainers"), "{text}");
    first.signal("KILL");
    drop(first);
    assert!(socket.exists(), "a killed process leaves its file");
    let second = site.start("c0", &["--peer", "s0=127.0.0.1:1"]);
    greet(&socket);
    second.signal("TERM");
    assert!(second.end().1.success());
    assert!(!socket.exists());
}

#[test]
fn a_port_in_use_is_named() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    site.write_topology(&address, "16KiB");
    let text = site.refused("s0");
    assert!(text.contains(&address) && text.contains("another process"), "{text}");
}

#[test]
fn bad_configuration_is_one_sentence_and_a_failure() {
    let site = Site::new();
    let text = site.refused("nobody");
    assert!(text.contains("has no node `nobody`") && text.contains("`s0`"), "{text}");
    let text = refused(site.command("c0").args(["--peer", "x9=127.0.0.1:1"]));
    assert!(text.contains("`--peer x9`"), "{text}");
    let text = refused(binary().args(["--topology", "/nonexistent.toml", "--node", "s0"]));
    assert!(text.contains("/nonexistent.toml"), "{text}");
    site.write_topology("127.0.0.1:0", "1B");
    let text = site.refused("c0");
    assert!(text.contains("cache"), "{text}");
    site.write_topology("127.0.0.1:0", "16KiB");
    std::fs::write(site.path("data/tiny/dataset.toml"), "format = 1\n").unwrap();
    let text = site.refused("c0");
    assert!(text.contains("dataset.toml"), "{text}");
    std::fs::remove_file(site.path("data/tiny/dataset.toml")).unwrap();
    let text = site.refused("c0");
    assert!(text.contains("dataset.toml") && text.contains("rudder import"), "{text}");
    assert!(!site.path("c0.sock").exists(), "a failed start leaves nothing");
    std::fs::write(site.path("cluster.toml"), "[[nodes]\n").unwrap();
    let text = site.refused("s0");
    assert!(text.contains("cluster.toml"), "{text}");
}

#[test]
fn strangers_at_the_ports_are_dropped_without_effect() {
    let site = Site::new();
    let node = site.start("s0", &[]);
    let garbage: [&[u8]; 5] =
        [b"", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64], &[0; 64], &[0x16, 3, 1, 0xff, 0xff, 1]];
    for address in [data_port(&node), node.ready["control"].as_str().unwrap().to_owned()] {
        for bytes in garbage {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // The node may have closed already; whatever it answers, it closes.
            let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
            let mut answer = vec![];
            if let Err(error) = stream.read_to_end(&mut answer) {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
            }
        }
    }
    node.signal("TERM");
    let (_, status, log) = node.end();
    assert!(status.success(), "{log}");
    assert!(!log.contains("panic"), "{log}");
}

#[test]
fn an_actor_that_keeps_failing_ends_the_node_with_a_reason() {
    let site = Site::new();
    let mut node = site.start("c0", &["--peer", "s0=127.0.0.1:1", "--test-faults"]);
    let socket = PathBuf::from(node.ready["trainer_socket"].as_str().unwrap());
    // Five restarts are borne by the loop's supervisor, and five of that one by the root.
    for _ in 0..36 {
        // The node may be gone before the last order.
        let _ = node.order().write_all(b"panic planner\n");
    }
    let (stopped, status, log) = node.end();
    assert_eq!(stopped["event"], "stopped");
    assert!(!status.success());
    let last = log.lines().last().unwrap();
    assert!(last.contains("the node gave up") && last.contains("planner"), "{last}");
    assert!(!socket.exists());
}

#[test]
fn faults_are_refused_unless_the_node_was_started_for_them() {
    let site = Site::new();
    let mut node = site.start("s0", &[]);
    for _ in 0..50 {
        node.order().write_all(b"panic acceptor\n").unwrap();
    }
    node.signal("TERM");
    let (_, status, log) = node.end();
    assert!(status.success() && !log.contains("panic"), "{log}");
}
