//! The node daemon: reads a topology, becomes one of its nodes, serves until it is told to stop.
//!
//! Standard output carries the ready line and, with `--json`, the stopped line; logs go to standard error.

#![forbid(unsafe_code)]

mod arguments;
mod logging;

use arguments::Arguments;
use clap::Parser;
use rudder_actors::node::{NodeConfig, RunningNode};
use rudder_dataplane::place_control;
use rudder_topology::Cores;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Bytes of an order on standard input at most.
const ORDER_BYTES_MAX: u64 = 256;

/// Why the process ends with an error.
#[derive(Debug)]
struct Fatal(String);

impl<E: std::error::Error> From<E> for Fatal {
    fn from(error: E) -> Self {
        Fatal(error.to_string())
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(arguments.log);
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fatal(reason)) => {
            // Nothing is left to do where standard error is closed.
            let _ = writeln!(io::stderr(), "rudder-node: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Fatal> {
    let mut cluster = rudder_topology::load(&arguments.topology)?;
    if let Some(keys) = &arguments.keys_dir {
        cluster.keys = Some(std::path::absolute(keys)?);
    }
    let config = NodeConfig {
        cluster,
        node: arguments.node.clone(),
        backend: arguments.backend.into(),
        peers: arguments.peers.iter().map(|peer| (peer.name.clone(), peer.address)).collect(),
        scheduler_address: arguments.scheduler,
        nvml_library: arguments.nvml_library.clone(),
    };
    let named = config.cluster.node_named(&arguments.node);
    let cores = named.map_or(Cores::Shared, |node| node.cores.clone());
    let place = move || {
        if let Err(error) = place_control(&cores) {
            tracing::warn!(%error, "a thread of the control plane is not bound");
        }
    };
    // What asks, answers and decides keeps off the cores of those who move bytes.
    place();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads)
        .on_thread_start(place)
        .thread_name(format!("node-{}", arguments.node))
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve(config, &arguments));
    // Blocking tasks that hang (a dial to a dead machine) do not keep the process.
    runtime.shutdown_background();
    ended
}

async fn serve(config: NodeConfig, arguments: &Arguments) -> Result<(), Fatal> {
    // Before the ready line: whoever reads it may send a signal at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut node = RunningNode::start(config).await?;
    if arguments.json {
        say(&Event::Ready(node.ready()))?;
    } else {
        writeln!(io::stdout(), "{}", node.ready())?;
    }
    let mut orders = arguments.test_faults.then(orders);
    let gave_up = loop {
        let order = async {
            match &mut orders {
                Some(orders) => orders.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            reason = node.gave_up() => break Some(reason),
            order = order => match order {
                Some(order) => {
                    if let Err(error) = node.fault(&order) {
                        tracing::warn!(%order, %error, "an order was not carried out");
                    }
                }
                None => orders = None,
            },
        }
    };
    let statistics = node.stop().await;
    if arguments.json {
        say(&Event::Stopped { statistics })?;
    }
    match gave_up {
        Some(reason) => Err(Fatal(format!("the node gave up: {reason}"))),
        None => Ok(()),
    }
}

#[derive(serde::Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Ready(&'a rudder_actors::node::Ready),
    Stopped { statistics: rudder_actors::node::StoppedStatistics },
}

fn say(event: &Event<'_>) -> Result<(), Fatal> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    io::stdout().write_all(line.as_bytes())?;
    Ok(io::stdout().flush()?)
}

/// Lines of standard input, read by a thread that ends with it.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let read = move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = io::Read::take(&mut input, ORDER_BYTES_MAX).read_line(&mut line);
            if !matches!(read, Ok(1..)) || sender.send(line.trim().to_owned()).is_err() {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("orders".to_owned()).spawn(read);
    if let Err(error) = spawned {
        tracing::warn!(%error, "standard input is not read");
    }
    receiver
}
