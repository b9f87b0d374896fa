//! Makes dataset directories (see [`rudder_graph::manifest`]) from other formats, and inspects them.
//!
//! Edges point the way messages flow: row 0 of an edge index is the source, row 1 the destination, and the CSC graph
//! lists for each destination its sources.
//!
//! Reading order: options, error, progress, source, read, csc, split, partition, order, numbering, block_size, sample,
//! target, write, import, memory, summary, inspect.

#![forbid(unsafe_code)]

mod options;

mod error;

mod progress;

mod source;

mod read;

mod csc;

mod split;

mod partition;

mod order;

mod numbering;

pub mod block_size;

mod sample;

mod target;

mod write;

mod import;

pub mod memory;

mod summary;

mod inspect;

pub use error::{At, GenerateError, ImportError, InspectError, LineProblem, OptionError, Place, ReadError};
pub use import::import;
pub use inspect::{Verify, inspect};
pub use options::{BlockSize, Direction, Existing, ImportOptions, Input, PARTS_MAX, Partitioner};
pub use progress::{Bars, Cancel, Cancelled, Phase, Progress, Silent, Total};
pub use source::Edge;
pub use summary::{
    ImportSummary, LabelSummary, PartSummary, SplitSummary, Summary, TableSummary, VerifySummary,
};
