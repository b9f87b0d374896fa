//! `rudder tree`

use crate::exit::{Failure, bad_input, failed};
use clap::Args;
use ractor::rpc::CallResult;
use rudder_membership::OperatorSession;
use rudder_messages::names::responder_group;
use rudder_messages::responder::decode_status;
use rudder_messages::{Answer, NodeStatus, NodeTree, ResponderMessage};
use rudder_topology::{Cluster, NodeId, NodeName};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

#[derive(Args)]
#[command(after_help = "Examples:
  rudder tree --topology lab.toml
  rudder tree --topology lab.toml --watch
  rudder tree --topology lab.toml --json | jq '.[].state'
  rudder tree --topology laptop.toml --control c0=127.0.0.1:41234   (a node that took a free port)")]
pub struct TreeArguments {
    #[arg(long)]
    topology: PathBuf,
    /// Only this node; may be repeated
    #[arg(long)]
    node: Vec<String>,
    /// Where a node's control port really is; may be repeated
    #[arg(long, value_name = "NAME=ADDRESS")]
    control: Vec<String>,
    /// Print again every two seconds
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const PATIENCE: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_secs(2);

pub fn run(arguments: &TreeArguments) -> Result<(), Failure> {
    let cluster = Arc::new(crate::topology::cluster(&arguments.topology)?);
    let addresses = addresses(&arguments.control)?;
    let nodes = wanted(&cluster, &arguments.node)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failed)?;
    let outcome = runtime.block_on(async {
        let session = OperatorSession::start(Arc::clone(&cluster)).await.map_err(failed)?;
        let outcome = show(&session, &cluster, &nodes, &addresses, arguments).await;
        session.shutdown().await;
        outcome
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn show(
    session: &OperatorSession,
    cluster: &Cluster,
    nodes: &[NodeId],
    addresses: &BTreeMap<NodeName, SocketAddr>,
    arguments: &TreeArguments,
) -> Result<(), Failure> {
    loop {
        let round = Instant::now();
        let mut trees = Vec::new();
        for &id in nodes {
            let node = cluster.node(id).name.clone();
            let answer = match ask(session, id, &node, addresses.get(&node).copied()).await {
                Ok(status) => Answer::Up(status),
                Err(reason) => Answer::Unreachable { reason },
            };
            trees.push(NodeTree { node, answer });
        }
        if arguments.json {
            crate::exit::print_json(&trees)?;
        } else {
            let clear = if arguments.watch && std::io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
            let text: String = trees.iter().map(ToString::to_string).collect();
            match write!(std::io::stdout(), "{clear}{text}") {
                // The reader, such as `head`, has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                written => written.map_err(failed)?,
            }
        }
        if !arguments.watch {
            let unreachable =
                trees.iter().filter(|tree| matches!(tree.answer, Answer::Unreachable { .. })).count();
            return if unreachable == 0 {
                Ok(())
            } else {
                Err(failed(format!("{unreachable} of {} nodes did not answer", trees.len())))
            };
        }
        // Either Ctrl-C ends the watch, or the next round begins.
        if let Ok(interrupted) = timeout_at(round + WATCH, tokio::signal::ctrl_c()).await {
            return interrupted.map_err(failed);
        }
    }
}

/// Connects where there is no connection yet, and asks.
async fn ask(
    session: &OperatorSession,
    id: NodeId,
    name: &NodeName,
    address: Option<SocketAddr>,
) -> Result<NodeStatus, String> {
    let group = responder_group(name);
    if session.member::<ResponderMessage>(&group).is_none() {
        let connected = timeout(PATIENCE, session.connect(id, address)).await;
        connected
            .map_err(|_| format!("no connection within {PATIENCE:?}"))?
            .map_err(|error| error.to_string())?;
    }
    let responder = session.member::<ResponderMessage>(&group).ok_or("it has no responder")?;
    match responder.call(ResponderMessage::Tree, Some(PATIENCE)).await {
        Ok(CallResult::Success(reply)) => decode_status(&reply).map_err(|error| error.to_string()),
        Ok(CallResult::Timeout) => Err(format!("no answer within {PATIENCE:?}")),
        Ok(CallResult::SenderError) => Err("it dropped the question".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn wanted(cluster: &Cluster, names: &[String]) -> Result<Vec<NodeId>, Failure> {
    if names.is_empty() {
        return Ok(cluster.nodes.iter().map(|node| node.id).collect());
    }
    let find = |name: &String| {
        let node = cluster.nodes.iter().find(|node| node.name.as_str() == name);
        node.map(|node| node.id).ok_or_else(|| crate::topology::no_such_node(cluster, name))
    };
    names.iter().map(find).collect()
}

fn addresses(stated: &[String]) -> Result<BTreeMap<NodeName, SocketAddr>, Failure> {
    let parse = |text: &String| {
        let (name, address) = text.split_once('=')?;
        Some((NodeName::new(name).ok()?, address.parse().ok()?))
    };
    let refuse = |text: &String| bad_input(format!("`{text}` is not like c0=127.0.0.1:7400"));
    stated.iter().map(|text| parse(text).ok_or_else(|| refuse(text))).collect()
}
