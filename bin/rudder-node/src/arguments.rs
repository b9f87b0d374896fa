//! The command line.

use clap::{Parser, ValueEnum};
use rudder_dataplane::BackendChoice;
use rudder_topology::NodeName;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Serves as one node of a Rudder cluster until SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(name = "rudder-node", version)]
pub struct Arguments {
    /// The topology file.
    #[arg(long, value_name = "FILE")]
    pub topology: PathBuf,
    /// Which of its nodes to be.
    #[arg(long, value_parser = node_name)]
    pub node: NodeName,
    /// Print the ready and stopped lines as JSON.
    #[arg(long)]
    pub json: bool,
    /// Format of the log on standard error; its levels come from RUST_LOG.
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    pub log: LogFormat,
    /// How movers talk to the kernel.
    #[arg(long, value_enum, default_value_t = BackendName::Auto)]
    pub backend: BackendName,
    /// Directory of certificates and keys, instead of the topology's.
    #[arg(long, value_name = "DIR")]
    pub keys_dir: Option<PathBuf>,
    /// Where a node's data port is, if not where the topology says (its port may be 0 there). May be repeated.
    #[arg(long = "peer", value_name = "NAME=ADDRESS")]
    pub peers: Vec<PeerAddress>,
    /// Where the scheduler's control plane is, if not where the topology says.
    #[arg(long, value_name = "ADDRESS")]
    pub scheduler: Option<SocketAddr>,
    /// Threads for actors; movers have their own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = threads)]
    pub threads: usize,
    /// NVML library, instead of the driver's own.
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<OsString>,
    /// Take orders to panic from standard input (tests of supervision).
    #[arg(long, hide = true)]
    pub test_faults: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// io_uring where the kernel lets us, else pread.
    Auto,
    Uring,
    Pread,
}

impl From<BackendName> for BackendChoice {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Auto => BackendChoice::Auto,
            BackendName::Uring => BackendChoice::Uring,
            BackendName::Pread => BackendChoice::Pread,
        }
    }
}

/// `NAME=ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    pub name: NodeName,
    pub address: SocketAddr,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once('=').ok_or("say NAME=ADDRESS, such as s0=127.0.0.1:7001")?;
        let address =
            address.parse().map_err(|_| format!("`{address}` is no address, such as 127.0.0.1:7001"))?;
        Ok(PeerAddress { name: node_name(name)?, address })
    }
}

fn node_name(text: &str) -> Result<NodeName, String> {
    NodeName::new(text).map_err(|error| error.to_string())
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err("say a number from 1 to 256".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_a_name_and_an_address() {
        let peer: PeerAddress = "s0=127.0.0.1:70".parse().unwrap();
        assert_eq!((peer.name.as_str(), peer.address.port()), ("s0", 70));
        for bad in ["", "s0", "s0=", "=127.0.0.1:70", "s 0=127.0.0.1:70", "s0=127.0.0.1", "s0=localhost:70"] {
            assert!(bad.parse::<PeerAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
        let arguments = Arguments::parse_from(["rudder-node", "--topology", "t.toml", "--node", "c0"]);
        assert_eq!((arguments.log, arguments.backend), (LogFormat::Human, BackendName::Auto));
    }
}
