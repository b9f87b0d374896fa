//! Where a row can be read; defined beside the dataset layout, since the node computes it too.

pub use rudder_graph::location::{LOCAL_MAPPINGS, Location, PRIVATE_MAPPING};
