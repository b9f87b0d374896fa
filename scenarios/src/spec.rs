//! The scenario file as written.
//!
//! ```toml
//! name = "smoke"
//! about = "one line for the report"
//! seed = 1
//! arms = ["none", "lru", "rudder"]      # or "all"; default: none, none_overlap, fixed_window, lru, lru_prefetch, rudder
//! repeats = 3                           # default 3
//! mode = "auto"                         # netns, relay, plain, auto, sim; default auto
//!
//! [dataset]
//! import = "../../datasets/debian"      # a source, or generate:...; or: directory = "an imported dataset"
//!                                       # or, simulated only: statistics = "powerlaw:vertices=100000000,degree=16,..."
//! parts = 2                             # default: one a storage node
//! rows_per_block = 1                    # default: import's choice
//!
//! [cluster]
//! compute_nodes = 2
//! storage_nodes = 2
//! trainers_per_node = 1                 # default 1
//! storage_mode = "memory"               # memory, direct, auto; default auto
//! require_disk = false                  # true: a dataset on tmpfs is refused
//! cache_share = 0.25                    # of the remote bytes; default 0.25
//! bandwidth = "50Mbit/s"                # of every node's link, each way
//! latency = "0ms"                       # one way; relay mode only
//! heartbeat_timeout = "3s"              # default: the product's
//! settle = "400ms"                      # between the nodes' ready lines and the trainers' start; default 400 ms
//!
//! [trainer]
//! seeds = 32
//! fanout = [10, 5]
//! window = 16                           # minibatches announced ahead; default 16
//! compute = "60ms"                      # emulated: the trainer sleeps
//! allreduce = "64KiB"                   # summed over all trainers every minibatch; default 0
//! minibatches = 50                      # of each trainer
//! fixed_window = 16                     # the window of that arm; default: window
//! replay = false                        # true: nodes are told how trainers sample, and sample ahead of them
//! verify = true                         # compare every byte; default true
//! command = ["my-trainer", "--socket", "{socket}"]   # default: the reference trainer; `{source}` in place of
//!                                       # `{socket}`: it is `-` for the bound, which the command then measures itself
//! time_limit = "60s"                    # of one run; default: ten times the bound's, at least 30 s
//!
//! [simulation]                          # how compute times vary; all 0 by default
//! jitter = 0.1                          # standard deviation of their logarithm, the mean kept
//! stragglers = 0.01                     # share of the steps that take
//! straggler_factor = 3.0                # so many times as long
//!
//! [[event]]                             # any number of them; what happens after so much training
//! at = "3s"
//! node = "s0"                           # both directions of its interface have another rate from now on: simulated,
//! bandwidth = "1Mbit/s"                 # and with real processes where namespaces shape the links
//!
//! [[event]]                             # this and what follows is simulated only
//! at = "3s"
//! link = "s0-c1"                        # both directions between two nodes; tbf shapes interfaces only
//! bandwidth = "10Mbit/s"                # in place of both, a storage node: down = true, up = true; a compute node:
//!                                       # cache_share = 0.1, at most the cluster's
//!
//! [[event]]                             # from this minibatch of every trainer on, the sampler asks for others
//! minibatch = 200
//! fanout = [20, 15]
//!
//! [[event]]                             # another job comes to the same nodes, to train on the same dataset
//! at = "20s"
//! join = true
//! window = 0                            # this, trainers_per_node, seeds, fanout, compute and minibatches are as the
//!                                       # first job's where they are left out; it has no all-reduce
//!
//! [advisor]                             # `rudder` under each of these, and what advice is worth: simulated, and with
//! backends = ["rules", "random"]        # real processes where namespaces shape the links; beside never, which is also
//!                                       # what all other runs have then. Without it the rules advise real processes
//! url = "http://127.0.0.1:8000/v1"      # of a back end that is served; simulated only
//! model = "small"
//! distilled = "distilled.json"          # of that back end: what `rudder experience train` wrote
//! ```

mod read;

pub use read::{ReadError, parse};

/// A value and the line it stands on (the table's line, where the key is absent).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At<T> {
    pub line: usize,
    pub value: T,
}

/// Everything that could be read of a file. What is absent is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    pub name: Option<At<String>>,
    pub about: Option<At<String>>,
    pub seed: Option<At<i64>>,
    pub arms: Option<At<Vec<String>>>,
    pub repeats: Option<At<i64>>,
    pub mode: Option<At<String>>,
    pub dataset: DatasetSpec,
    pub cluster: ClusterSpec,
    pub trainer: TrainerSpec,
    pub simulation: SimulationSpec,
    pub advisor: AdvisorSpec,
    pub events: Vec<EventSpec>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatasetSpec {
    pub line: usize,
    pub import: Option<At<String>>,
    pub directory: Option<At<String>>,
    pub statistics: Option<At<String>>,
    pub parts: Option<At<i64>>,
    pub rows_per_block: Option<At<i64>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSpec {
    pub line: usize,
    pub compute_nodes: Option<At<i64>>,
    pub storage_nodes: Option<At<i64>>,
    pub trainers_per_node: Option<At<i64>>,
    pub storage_mode: Option<At<String>>,
    pub require_disk: Option<At<bool>>,
    pub cache_share: Option<At<f64>>,
    pub bandwidth: Option<At<String>>,
    pub latency: Option<At<String>>,
    pub heartbeat_timeout: Option<At<String>>,
    pub settle: Option<At<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainerSpec {
    pub line: usize,
    pub seeds: Option<At<i64>>,
    pub fanout: Option<At<Vec<i64>>>,
    pub window: Option<At<i64>>,
    pub compute: Option<At<String>>,
    pub allreduce: Option<At<String>>,
    pub minibatches: Option<At<i64>>,
    pub fixed_window: Option<At<i64>>,
    pub replay: Option<At<bool>>,
    pub verify: Option<At<bool>>,
    pub command: Option<At<Vec<String>>>,
    pub time_limit: Option<At<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulationSpec {
    pub line: usize,
    pub jitter: Option<At<f64>>,
    pub stragglers: Option<At<f64>>,
    pub straggler_factor: Option<At<f64>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdvisorSpec {
    pub line: usize,
    pub backends: Option<At<Vec<String>>>,
    pub url: Option<At<String>>,
    pub model: Option<At<String>>,
    pub distilled: Option<At<String>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventSpec {
    pub line: usize,
    pub at: Option<At<String>>,
    pub link: Option<At<String>>,
    pub node: Option<At<String>>,
    pub bandwidth: Option<At<String>>,
    pub cache_share: Option<At<f64>>,
    pub down: Option<At<bool>>,
    pub up: Option<At<bool>>,
    pub minibatch: Option<At<i64>>,
    pub join: Option<At<bool>>,
    pub trainers_per_node: Option<At<i64>>,
    pub window: Option<At<i64>>,
    pub seeds: Option<At<i64>>,
    pub fanout: Option<At<Vec<i64>>>,
    pub compute: Option<At<String>>,
    pub minibatches: Option<At<i64>>,
}
