//! The parent's side: clusters of child processes, and strangers at their door.

use crate::child;
use rudder_client::identity::{Identity, PeerName, server_name};
use rudder_membership::Refusal;
use rudder_membership::keys::{Existing, init_names};
use rudder_messages::codec;
use rudder_topology::{Generation, NodeName};
use rustix::process::{Pid, Signal, kill_process};
use rustls::{ClientConnection, StreamOwned};
use serde::Deserialize;
use std::cell::RefCell;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

/// What takes longer has failed.
const DEADLINE: Duration = Duration::from_secs(120);

/// A topology of a scheduler `sched` and storage nodes, all on loopback with port 0.
pub struct Cluster {
    folder: TempDir,
    nodes: Vec<String>,
    keyed: bool,
}

impl Cluster {
    pub fn with_keys(nodes: &[&str]) -> Cluster {
        let cluster = Cluster { keyed: true, ..Cluster::without_keys(nodes) };
        let names: Vec<NodeName> = cluster.nodes.iter().map(|name| NodeName::new(name).unwrap()).collect();
        init_names(&names, &cluster.keys(), Existing::Refuse).unwrap();
        // The same names by an authority that the cluster does not know.
        init_names(&names, &cluster.foreign_keys(), Existing::Refuse).unwrap();
        cluster
    }

    pub fn without_keys(nodes: &[&str]) -> Cluster {
        let mut nodes: Vec<String> = nodes.iter().map(|&node| node.to_owned()).collect();
        nodes.insert(0, "sched".to_owned());
        Cluster { folder: tempfile::tempdir().unwrap(), nodes, keyed: false }
    }

    fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn foreign_keys(&self) -> PathBuf {
        self.folder.path().join("foreign")
    }

    /// The topology, with the scheduler at `scheduler`.
    fn topology(&self, scheduler: &str) -> PathBuf {
        let mut text = String::new();
        if self.keyed {
            text.push_str("keys = \"keys\"\n");
        }
        for name in &self.nodes {
            let (role, control) =
                if name == "sched" { ("scheduler", scheduler) } else { ("storage", "127.0.0.1:0") };
            text.push_str(&format!(
                "[[nodes]]\nname = \"{name}\"\nroles = [\"{role}\"]\ncontrol = \"{control}\"\n"
            ));
            if role == "storage" {
                text.push_str("data = \"127.0.0.1:0\"\nstorage_directory = \"d\"\n");
            }
        }
        let file = self.folder.path().join(format!("{}.toml", scheduler.replace(':', "-")));
        // Whole or not at all: a child that started before may be reading it.
        let draft = tempfile::NamedTempFile::new_in(self.folder.path()).unwrap();
        std::fs::write(draft.path(), text).unwrap();
        draft.persist(&file).unwrap();
        file
    }

    pub fn start(&self, node: &str, generation: u64, scheduler: Option<SocketAddr>) -> Process {
        self.spawn("node", &self.topology("127.0.0.1:0"), node, generation, scheduler)
    }

    /// Starts the scheduler at an address that is known.
    pub fn start_at(&self, node: &str, generation: u64, at: SocketAddr) -> Process {
        self.spawn("node", &self.topology(&at.to_string()), node, generation, None)
    }

    /// Starts an operator that dials a node.
    pub fn operate(&self, node: &str, at: SocketAddr) -> Process {
        self.spawn("operator", &self.topology("127.0.0.1:0"), node, 0, Some(at))
    }

    fn spawn(
        &self,
        role: &str,
        topology: &Path,
        node: &str,
        generation: u64,
        at: Option<SocketAddr>,
    ) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child::child", "--ignored", "--nocapture"])
            .env(child::ROLE, role)
            .env(child::TOPOLOGY, topology)
            .env(child::NODE, node)
            .env(child::GENERATION, generation.to_string())
            .env(child::ADDRESS, at.map(|at| at.to_string()).unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(child::MARK)
                    && sender.send(line.to_owned()).is_err()
                {
                    break;
                }
            }
        });
        Process { name: node.to_owned(), child, lines, seen: RefCell::new(Vec::new()) }
    }
}

/// An address of the loopback network that no other process binds or calls from, port 0. A port of 127.0.0.1 that the
/// kernel gave and that is free again may be taken by anybody's connection before a restarted node binds it.
pub fn address_of_this_process() -> SocketAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 128 | high, middle, low], 0))
}

/// A child process; killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: RefCell<Vec<String>>,
}

impl Process {
    /// Waits for a line that starts with `prefix`, among those not yet waited for.
    pub fn expect(&self, prefix: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
                panic!("{} never said `{prefix}`, but: {:?}", self.name, self.seen.borrow());
            };
            self.seen.borrow_mut().push(line.clone());
            if line.starts_with(prefix) {
                return line;
            }
        }
    }

    /// Whether a line said so far starts with `prefix`.
    pub fn seen(&self, prefix: &str) -> bool {
        self.seen.borrow_mut().extend(self.lines.try_iter());
        self.seen.borrow().iter().any(|line| line.starts_with(prefix))
    }

    pub fn listening(&self) -> SocketAddr {
        let line = self.expect("listening ");
        line.trim_start_matches("listening ").parse().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills it and waits until it is gone: its connections close before its listener does, so others hear of its end
    /// while the address is still taken.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Ends it in order and asserts that it did.
    pub fn stop(mut self) {
        drop(self.child.stdin.take());
        self.expect("stopped");
        assert!(self.child.wait().unwrap().success());
    }

    /// The ports on which the process listens, by /proc.
    pub fn listening_ports(&self) -> Vec<u16> {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let sockets: Vec<String> = std::fs::read_dir(proc.join("fd"))
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        let table = std::fs::read_to_string(proc.join("net/tcp")).unwrap();
        let listening = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        listening
            .filter(|columns| columns[3] == "0A" && sockets.iter().any(|inode| inode == columns[9]))
            .map(|columns| u16::from_str_radix(columns[1].rsplit(':').next().unwrap(), 16).unwrap())
            .collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a hello, as it is on the wire.
#[derive(Debug, Deserialize)]
pub enum Answer {
    Welcome((String, Generation)),
    Refused(Refusal),
}

/// A client that speaks TLS and says hello by hand.
pub struct Stranger {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Stranger {
    pub fn with_certificate(cluster: &Cluster, name: &str, at: SocketAddr) -> Stranger {
        Stranger::new(&cluster.keys(), &cluster.keys(), name, at)
    }

    pub fn with_foreign_certificate(cluster: &Cluster, name: &str, at: SocketAddr) -> Stranger {
        Stranger::new(&cluster.keys(), &cluster.foreign_keys(), name, at)
    }

    /// Trusts the authority in `authority`, shows the certificate of `own`.
    fn new(authority: &Path, own: &Path, name: &str, at: SocketAddr) -> Stranger {
        let read = |file: PathBuf| std::fs::read(file).unwrap();
        let identity = Identity::from_pem(
            &PeerName::parse(name).unwrap(),
            &read(authority.join("ca.pem")),
            &read(own.join(format!("{name}.pem"))),
            &read(own.join(format!("{name}.key"))),
        )
        .unwrap();
        let server = server_name(&PeerName::parse("sched").unwrap()).unwrap();
        let tls = ClientConnection::new(identity.client_config().unwrap(), server).unwrap();
        let tcp = TcpStream::connect(at).unwrap();
        tcp.set_read_timeout(Some(DEADLINE)).unwrap();
        Stranger { stream: StreamOwned::new(tls, tcp) }
    }

    /// The answer, `None` where the connection ended instead.
    pub fn hello(mut self, name: &str, generation: u64) -> Option<Answer> {
        let body = codec::encode(&(name, generation)).unwrap();
        let mut frame = u16::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        // With TLS 1.3 the refusal of a certificate arrives after the client's side is done.
        let answer = self.stream.write_all(&frame).and_then(|()| {
            let mut length = [0; 2];
            self.stream.read_exact(&mut length)?;
            let mut body = vec![0; usize::from(u16::from_be_bytes(length))];
            self.stream.read_exact(&mut body)?;
            Ok(body)
        });
        match answer {
            Ok(body) => Some(codec::decode(&body).unwrap()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("neither an answer nor an end")
            }
            Err(_) => None,
        }
    }
}

/// Whether a server ends a connection that says nothing.
pub fn hangs_up(at: impl ToSocketAddrs) -> bool {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    match stream.read(&mut [0; 1]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}
