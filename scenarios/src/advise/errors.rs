//! Why there is no advice, and what to do.

use crate::sim::SimError;
use rudder_topology::DatasetName;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    #[error(
        "{} places no dataset `{dataset}`, but {known}: add [[datasets]] with name = \"{dataset}\", or import the \
         dataset under the name that is there (rudder import ... --name NAME)",
        file.display()
    )]
    UnknownDataset { file: PathBuf, dataset: DatasetName, known: String },
    #[error(
        "the dataset `{dataset}` is cut into {found} parts and {} places {placed}: say parts = {found} there, or \
         import it again with --parts {placed}",
        file.display()
    )]
    Parts { file: PathBuf, dataset: DatasetName, found: usize, placed: usize },
    #[error(
        "{} has no compute node, and trainers run nowhere else: give a node roles = [\"compute\"], a trainer_socket and \
         a cache (`rudder topology check {}` says what is missing)",
        file.display(),
        file.display()
    )]
    NoCompute { file: PathBuf },
    #[error(
        "{} holds no graph, and without one nothing can be sampled: give the directory that `rudder import` made, or \
         pull the graph too (`rudder inspect {} --quick` shows what is there)",
        directory.display(),
        directory.display()
    )]
    NoGraph { directory: PathBuf },
    #[error(
        "{wanted} minibatches of {trainers} trainers are more than there is memory for here: at most {most} (--minibatches)"
    )]
    Minibatches { wanted: u64, trainers: u32, most: u64 },
    #[error("no arms: name some, or `all` (--arms)")]
    NoArms,
    #[error("{what}: {source}")]
    Simulation { what: String, source: SimError },
    #[error("stopped on request")]
    Stopped,
}
