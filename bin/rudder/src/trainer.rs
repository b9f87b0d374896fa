//! `rudder trainer`

use crate::exit::{Failure, bad_input, failed, say};
use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use rudder_graph::trace::TraceSpec;
use rudder_scenarios::compile::Verify;
use rudder_scenarios::stop::Stop;
use rudder_scenarios::trainer::event::Event;
use rudder_scenarios::trainer::{
    Length, Load, Peers, RingOptions, Sink, TrainerError, TrainerOptions, parse_peers, run as train,
};
use rudder_topology::{Bytes, JobId, Nanos, NodeName, TrainerRank};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(
    group(ArgGroup::new("load").required(true).args(["socket", "topology", "bound"])),
    after_help = "Compute is emulated: the trainer sleeps where a GPU would compute.

Examples:
  rudder trainer --topology laptop.toml --node c0 --dataset debian.dataset --epochs 1 --verify
  rudder trainer --socket c0.sock --dataset debian.dataset --rank 1 --world 2 --ring 10.0.0.1:7100,10.0.0.2:7100 --allreduce-bytes 65536
  rudder trainer --bound --dataset debian.dataset --minibatches 100 --compute-ms 20"
)]
pub struct TrainerArguments {
    /// The compute node's trainer socket
    #[arg(long)]
    socket: Option<PathBuf>,
    /// A topology file, which says where --node has its trainer socket
    #[arg(long, requires = "node")]
    topology: Option<PathBuf>,
    /// The compute node on this machine
    #[arg(long, requires = "topology")]
    node: Option<String>,
    /// No features: compute and all-reduce only
    #[arg(long)]
    bound: bool,
    /// A dataset directory with the graph
    #[arg(long)]
    dataset: PathBuf,
    #[arg(long, default_value_t = 0)]
    job: u32,
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Trainers of the job
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    world: u32,
    /// Seeds of a minibatch
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Neighbours sampled a hop
    #[arg(long, value_delimiter = ',', default_value = "10,5", value_parser = clap::value_parser!(u32).range(1..))]
    fanout: Vec<u32>,
    /// Minibatches announced ahead; 0: none, every minibatch is a surprise
    #[arg(long, default_value_t = 16)]
    window: u32,
    /// Let the node sample ahead of this trainer, from the same seeds
    #[arg(long)]
    declare_sampler: bool,
    /// Emulated compute of a minibatch
    #[arg(long, default_value_t = 20.0)]
    compute_ms: f64,
    #[arg(long, conflicts_with = "epochs", value_parser = clap::value_parser!(u64).range(1..))]
    minibatches: Option<u64>,
    /// Default: one epoch
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compare every gathered byte with the dataset
    #[arg(long)]
    verify: bool,
    /// Addresses of all trainers in rank order, for the all-reduce; `-`: one line of standard input says them
    #[arg(long, requires = "allreduce_bytes")]
    ring: Option<String>,
    /// Where this trainer's end of the ring listens (default: its own of --ring)
    #[arg(long)]
    ring_bind: Option<SocketAddr>,
    /// Size of the vector that is summed over all trainers every minibatch
    #[arg(long)]
    allreduce_bytes: Option<u64>,
    /// How long a single wait may take, such as 30s
    #[arg(long, default_value = "120s")]
    time_out: String,
    /// Print every step as a line of JSON
    #[arg(long)]
    json_events: bool,
}

pub fn run(arguments: &TrainerArguments) -> Result<(), Failure> {
    let options = options(arguments)?;
    let stop = Stop::on_signals().map_err(failed)?;
    if arguments.json_events {
        return train(&options, &stop, &mut JsonLines).map(|_| ()).map_err(failed);
    }
    let mut people = People::new(&options);
    let finished = train(&options, &stop, &mut people).map_err(|error| match error {
        TrainerError::Dataset(_) | TrainerError::NoGraph { .. } => bad_input(error),
        error => failed(error),
    })?;
    people.summary(finished.bytes_wrong, arguments.verify)?;
    if finished.bytes_wrong > 0 { Err(failed("bytes differ from the dataset")) } else { Ok(()) }
}

fn options(arguments: &TrainerArguments) -> Result<TrainerOptions, Failure> {
    if arguments.rank >= arguments.world {
        return Err(bad_input(format!("rank {} is not one of {} trainers", arguments.rank, arguments.world)));
    }
    let compute = Duration::try_from_secs_f64(arguments.compute_ms / 1e3)
        .map_err(|_| bad_input("--compute-ms is a time from 0 on"))?;
    let time_out: Nanos = arguments.time_out.parse().map_err(bad_input)?;
    let length = match (arguments.minibatches, arguments.epochs) {
        (Some(minibatches), _) => Length::Minibatches(minibatches),
        (None, epochs) => Length::Epochs(epochs.unwrap_or(1)),
    };
    Ok(TrainerOptions {
        job: JobId(arguments.job),
        dataset: arguments.dataset.clone(),
        load: load(arguments)?,
        trace: TraceSpec {
            seed: arguments.seed,
            rank: TrainerRank(arguments.rank),
            world: arguments.world,
            seeds: arguments.seeds,
            fanout: arguments.fanout.clone(),
        },
        window: arguments.window,
        declare_sampler: arguments.declare_sampler,
        length,
        compute,
        verify: if arguments.verify { Verify::Every } else { Verify::Nothing },
        ring: ring(arguments)?,
        time_out: Duration::from_nanos(time_out.0),
    })
}

fn load(arguments: &TrainerArguments) -> Result<Load, Failure> {
    if let Some(socket) = &arguments.socket {
        return Ok(Load::Node(socket.clone()));
    }
    let (Some(topology), Some(node)) = (&arguments.topology, &arguments.node) else { return Ok(Load::Bound) };
    let cluster = crate::topology::cluster(topology)?;
    let name = NodeName::new(node.clone()).map_err(bad_input)?;
    let node =
        cluster.node_named(&name).ok_or_else(|| crate::topology::no_such_node(&cluster, name.as_str()))?;
    let socket = node.trainer_socket.clone();
    socket.map(Load::Node).ok_or_else(|| {
        bad_input(format!("`{name}` is no compute node: give one, `rudder topology show` lists them"))
    })
}

fn ring(arguments: &TrainerArguments) -> Result<Option<RingOptions>, Failure> {
    let Some(stated) = &arguments.ring else { return Ok(None) };
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (peers, own) = if stated == "-" {
        (Peers::FromInput, any)
    } else {
        let peers = parse_peers(stated).map_err(bad_input)?;
        let own = peers.get(arguments.rank as usize).copied();
        let own = own.filter(|_| peers.len() == arguments.world as usize);
        (
            Peers::Stated(peers),
            own.ok_or_else(|| bad_input("--ring names one address for each of --world trainers"))?,
        )
    };
    let bytes = Bytes(arguments.allreduce_bytes.unwrap_or(0));
    Ok(Some(RingOptions { bind: arguments.ring_bind.unwrap_or(own), peers, bytes }))
}

/// Every event as a line; a reader that has gone ends the trainer at its next wait, by the stop flag of its parent.
struct JsonLines;

impl Sink for JsonLines {
    fn event(&mut self, event: &Event) {
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(event.line().as_bytes()).and_then(|()| stdout.flush());
    }
}

/// A progress bar and a summary.
struct People {
    bar: ProgressBar,
    steps: u64,
    step_ns: u64,
    wait_ns: u64,
    rows: u64,
    compute: Duration,
}

impl People {
    fn new(options: &TrainerOptions) -> Self {
        let bar = match options.length {
            Length::Minibatches(minibatches) => ProgressBar::new(minibatches),
            Length::Epochs(_) => ProgressBar::new_spinner(),
        };
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos} minibatches {msg} {elapsed}") {
            bar.set_style(style);
        }
        People { bar, steps: 0, step_ns: 0, wait_ns: 0, rows: 0, compute: options.compute }
    }

    fn wait_share(&self) -> f64 {
        self.wait_ns as f64 / self.step_ns.max(1) as f64
    }

    fn summary(&self, bytes_wrong: u64, verified: bool) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        let seconds = self.step_ns as f64 / 1e9;
        say(format_args!(
            "{} minibatches in {seconds:.2} s: {:.2} a second, waited {:.1} % of the time, {} rows; compute is emulated, {:?} of sleep each",
            self.steps,
            self.steps as f64 / seconds.max(1e-9),
            self.wait_share() * 100.0,
            self.rows,
            self.compute
        ))?;
        if verified { say(format_args!("{bytes_wrong} bytes differ from the dataset")) } else { Ok(()) }
    }
}

impl Sink for People {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Step(step) => {
                self.steps += 1;
                self.step_ns += step.step_ns;
                self.wait_ns += step.wait_ns;
                self.rows += step.rows;
                self.bar.inc(1);
                self.bar.set_message(format!("waited {:.1} %", self.wait_share() * 100.0));
            }
            Event::Listening { ring } => {
                // It is only a hint; training goes on without a reader.
                let _ = say(format_args!("the ring listens on {ring}"));
            }
            Event::Started { .. } | Event::Finished(_) | Event::Failed { .. } => {}
        }
    }
}
