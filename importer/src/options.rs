//! What an import is asked for.

use crate::error::OptionError;
use crate::progress::Cancel;
use rudder_topology::DatasetName;
use std::path::PathBuf;
use std::str::FromStr;

/// What to import, where to, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    pub input: Input,
    /// The dataset directory to make.
    pub target: PathBuf,
    /// Name in the manifest; left out: the target's last component.
    pub name: Option<DatasetName>,
    /// A `.npy` or `.npz` file with the features; left out: looked for beside the edges.
    pub features: Option<PathBuf>,
    /// Left out: one, or as many as the input is cut into already.
    pub parts: Option<u32>,
    /// A file that says which part each vertex goes to: text with a part a line, or a `.npy` array; or a folder with one
    /// such text.
    pub placement: Option<PathBuf>,
    pub partitioner: Partitioner,
    pub direction: Direction,
    pub block_size: BlockSize,
    /// Neighbours sampled a hop, from the seeds outward; used for ordering and for `auto` block sizes.
    pub fanout: Vec<u32>,
    /// Seeds a minibatch; used like `fanout`.
    pub seeds: u32,
    /// Seeds every random choice: METIS, split, samples.
    pub seed: u64,
    pub existing: Existing,
    pub cancel: Cancel,
}

impl ImportOptions {
    /// The defaults: one part, METIS, edges as given, `auto` block size for fanout 10,5 and 64 seeds.
    #[must_use]
    pub fn new(input: Input, target: impl Into<PathBuf>) -> Self {
        ImportOptions {
            input,
            target: target.into(),
            name: None,
            features: None,
            parts: None,
            placement: None,
            partitioner: Partitioner::Auto,
            direction: Direction::AsGiven,
            block_size: BlockSize::Auto,
            fanout: vec![10, 5],
            seeds: 64,
            seed: 1,
            existing: Existing::Refuse,
            cancel: Cancel::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), OptionError> {
        if let Some(parts) = self.parts.filter(|parts| !(1..=PARTS_MAX).contains(parts)) {
            return Err(OptionError::Parts { parts, max: PARTS_MAX });
        }
        if self.seeds == 0 || self.fanout.is_empty() || self.fanout.contains(&0) {
            return Err(OptionError::Sampling);
        }
        match self.block_size {
            BlockSize::Rows(rows) if !rows.is_power_of_two() || rows > 64 => {
                Err(OptionError::RowsPerBlock(rows))
            }
            _ => Ok(()),
        }
    }
}

/// Most parts of a dataset: part ids are u16.
pub const PARTS_MAX: u32 = 65_535;

/// Where a graph comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A folder of arrays, a folder in OGB's raw layout, a chunked graph or partitions of DGL's, or an edge list file.
    Path(PathBuf),
    /// What follows `generate:`, such as `rmat,vertices=2M,edges=20M,dim=128,seed=1`.
    Generate(String),
}

impl FromStr for Input {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.strip_prefix("generate:") {
            Some(spec) => Input::Generate(spec.to_owned()),
            None => Input::Path(PathBuf::from(text)),
        })
    }
}

/// Which edges the dataset holds. Messages flow from source to destination in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Every edge as given, repeats included.
    #[default]
    AsGiven,
    /// Every edge and its reverse, each kept once.
    Symmetric,
}

/// Who cuts the graph into parts. One part needs nobody; naming a partitioner overrides what the input says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioner {
    /// Nobody where the input says where each vertex goes. Else METIS where its 32-bit indices and the memory limit
    /// allow it, else streaming.
    #[default]
    Auto,
    Metis,
    /// Linear deterministic greedy, restreamed.
    Streaming,
}

impl FromStr for Partitioner {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Partitioner::Auto),
            "metis" => Ok(Partitioner::Metis),
            "streaming" => Ok(Partitioner::Streaming),
            _ => Err("the partitioners are auto, metis, streaming"),
        }
    }
}

/// Rows a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSize {
    /// Sampled minibatches decide.
    #[default]
    Auto,
    /// A power of two, 1 to 64.
    Rows(u32),
}

impl FromStr for BlockSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(BlockSize::Auto);
        }
        match text.parse::<u32>() {
            Ok(rows) if rows.is_power_of_two() && rows <= 64 => Ok(BlockSize::Rows(rows)),
            _ => Err("rows a block are a power of two from 1 to 64, or auto"),
        }
    }
}

/// What happens to a dataset that stands under the target's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    #[default]
    Refuse,
    /// Replaced at the very end, and only if it is a dataset.
    Replace,
}
