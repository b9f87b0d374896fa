//! `rudder import`

use crate::exit::{Failure, bad_input, failed, print, print_json};
use clap::{Args, ValueEnum};
use rudder_importer::{
    Bars, BlockSize, Cancel, Direction, Existing, ImportError, ImportOptions, Input, Partitioner, import,
};
use rudder_scenarios::stop::Stop;
use rudder_topology::DatasetName;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(after_help = "Examples:
  rudder import datasets/debian debian.dataset --parts 2
  rudder import ogbn_products/ products.dataset --parts 8 --rows-per-block auto --fanout 15,10,5
  rudder import partitions/products.json products.dataset
  rudder import edges.tsv.gz tiny.dataset --features features.npy
  rudder import generate:rmat:vertices=2M,edges=20M,dim=128 big.dataset --parts 4")]
pub struct ImportArguments {
    /// A folder of .npy/.npz arrays, in OGB's raw layout, of a chunked graph or of partitions of DGL's (or its JSON
    /// file), an edge list (.tsv, .csv, gzipped or not), or `generate:...`
    input: String,
    /// The dataset directory to make
    target: PathBuf,
    /// Name in the manifest (default: the target's name)
    #[arg(long)]
    name: Option<String>,
    /// A .npy or .npz file with the features, where they do not lie beside the edges
    #[arg(long)]
    features: Option<PathBuf>,
    /// Parts to cut the graph into (default: 1, or as many as the input is cut into already)
    #[arg(long)]
    parts: Option<u32>,
    /// A part a line for each vertex, or a .npy file of parts: where each vertex goes
    #[arg(long, value_name = "FILE")]
    placement: Option<PathBuf>,
    /// auto, metis or streaming; naming one cuts anew what is cut already
    #[arg(long, default_value = "auto", value_parser = parse::<Partitioner>)]
    partitioner: Partitioner,
    /// Edges as given, or every edge with its reverse
    #[arg(long, value_enum, default_value_t = EdgeDirection::AsGiven)]
    direction: EdgeDirection,
    /// A power of two from 1 to 64, or auto
    #[arg(long, default_value = "auto", value_parser = parse::<BlockSize>)]
    rows_per_block: BlockSize,
    /// Neighbours sampled a hop, which `auto` and the order of rows go by
    #[arg(long, value_delimiter = ',', default_value = "10,5")]
    fanout: Vec<u32>,
    /// Seeds of a minibatch
    #[arg(long, default_value_t = 64)]
    seeds: u32,
    /// Seeds every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Replace a dataset that is there
    #[arg(long)]
    force: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EdgeDirection {
    AsGiven,
    Symmetric,
}

fn parse<T: std::str::FromStr<Err = &'static str>>(text: &str) -> Result<T, String> {
    text.parse().map_err(str::to_owned)
}

pub fn run(arguments: &ImportArguments) -> Result<(), Failure> {
    let Ok(input) = arguments.input.parse::<Input>();
    let name = arguments.name.clone().map(DatasetName::new).transpose().map_err(bad_input)?;
    let options = ImportOptions {
        name,
        features: arguments.features.clone(),
        parts: arguments.parts,
        placement: arguments.placement.clone(),
        partitioner: arguments.partitioner,
        direction: match arguments.direction {
            EdgeDirection::AsGiven => Direction::AsGiven,
            EdgeDirection::Symmetric => Direction::Symmetric,
        },
        block_size: arguments.rows_per_block,
        fanout: arguments.fanout.clone(),
        seeds: arguments.seeds,
        seed: arguments.seed,
        existing: if arguments.force { Existing::Replace } else { Existing::Refuse },
        cancel: cancel_on_signals()?,
        ..ImportOptions::new(input, &arguments.target)
    };
    let summary = import(&options, &mut Bars::default()).map_err(|error| match error {
        ImportError::Cancelled(_) | ImportError::Write { .. } => failed(error),
        error => bad_input(error),
    })?;
    if arguments.json {
        return print_json(&summary);
    }
    print(summary)
}

/// A flag that signals raise; a thread carries it over from the process's own flag.
pub fn cancel_on_signals() -> Result<Cancel, Failure> {
    let stop = Stop::on_signals().map_err(failed)?;
    let cancel = Cancel::default();
    let raised = cancel.clone();
    std::thread::spawn(move || {
        while !stop.is_raised() {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        raised.cancel();
    });
    Ok(cancel)
}
