//! What can be wrong with a topology file. Each message says what is wrong, then what would be right.

use crate::ids::{MachineName, NameError, NodeName};
use crate::quantity::QuantityError;
use std::fmt;
use std::path::PathBuf;

/// Everything that is wrong with one topology file, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyErrors {
    pub errors: Vec<TopologyError>,
}

impl fmt::Display for TopologyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.errors.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for TopologyErrors {}

/// One thing that is wrong, with its place. Shown as `file:line: what; what would be right`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    pub file: PathBuf,
    /// Counted from 1; `None` where the file as a whole is wrong.
    pub line: Option<u32>,
    pub kind: TopologyErrorKind,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file.display(), self.kind),
            None => write!(f, "{}: {}", self.file.display(), self.kind),
        }
    }
}

impl std::error::Error for TopologyError {}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyErrorKind {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(transparent)]
    Placement(#[from] PlacementError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Advisor(#[from] AdvisorError),
}

/// The file as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("cannot be read: {reason}; give the path of a topology file")]
    Read { reason: String },
    #[error("is larger than {limit_bytes} bytes; a topology file is a short text")]
    TooBig { limit_bytes: u64 },
    #[error("is not UTF-8; a topology file is TOML text")]
    NotText,
}

/// The text: keys and the types of their values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    #[error("not TOML: {message}")]
    Syntax { message: String },
    #[error("unknown key `{key}` in {table}; {hint}")]
    UnknownKey { key: String, table: &'static str, hint: Hint },
    #[error("`{key}` is {found}; write {expected}")]
    WrongType { key: String, found: &'static str, expected: &'static str },
    #[error("{table} has no `{key}`; add {example}")]
    Missing { table: String, key: &'static str, example: &'static str },
    #[error("`{key} = \"{text}\"`: {reason}")]
    Value { key: &'static str, text: String, reason: ValueError },
    #[error("`{key} = {value}` is out of range; it is from {min} to {max}")]
    Range { key: String, value: i64, min: u64, max: u64 },
    #[error("`{key} = {value}` is out of range; it is from {min} to {max}")]
    Share { key: &'static str, value: String, min: String, max: String },
    #[error(
        "`fanout = {text}` is no fanout; write 1 to 8 hops of 1 to 65535 neighbours, such as [15, 10, 5]"
    )]
    Fanout { text: String },
    #[error("{count} {what}; at most {max} are allowed")]
    TooMany { what: &'static str, count: usize, max: usize },
}

/// Why a text value was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("{0}")]
    Quantity(#[from] QuantityError),
    #[error("{0}")]
    Name(#[from] NameError),
    #[error("not an address; write IP:port such as \"127.0.0.1:7000\"")]
    Address,
    #[error("peers cannot dial this address; write the address of one interface")]
    Unspecified,
    #[error("the path is empty; write a path")]
    EmptyPath,
    #[error("`~` is not expanded; write the whole path")]
    Tilde,
    #[error("a Unix socket's path has at most 100 bytes, this one has {bytes}; choose a shorter one")]
    SocketPath { bytes: usize },
    #[error("not one of the choices; {hint}")]
    Choice { hint: Hint },
    #[error("not cores; write cpu numbers such as \"0-3,8\" or objects such as \"core:2\" or \"numa:0\"")]
    Cores,
}

/// What a misspelt word may have meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub nearest: Option<&'static str>,
    pub known: &'static [&'static str],
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nearest {
            Some(nearest) => write!(f, "did you mean `{nearest}`?"),
            None => write!(f, "it is one of {}", self.known.join(", ")),
        }
    }
}

impl Hint {
    pub(crate) fn new(word: &str, known: &'static [&'static str]) -> Hint {
        // Long garbage is near to nothing; comparing it would only cost time.
        let nearest = (word.len() <= 40)
            .then(|| known.iter().map(|&k| (edit_distance(word, k), k)).min())
            .flatten()
            .filter(|&(distance, nearest)| distance <= (nearest.len() / 3).max(1))
            .map(|(_, nearest)| nearest);
        Hint { nearest, known }
    }
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// A node, or several that cannot live together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    #[error("no nodes; add at least one [[nodes]]")]
    None,
    #[error("the name `{name}` is taken by the node of line {first_line}; give each node its own name")]
    DuplicateName { name: NodeName, first_line: u32 },
    #[error("`operator` is the operator's own name in certificates; choose another name")]
    OperatorName,
    #[error(
        "node `{node}` has no role; write roles = [\"compute\"], [\"storage\"], [\"scheduler\"] or several"
    )]
    NoRole { node: String },
    #[error(
        "`{key}` is for {role} nodes and `{node}` is none; remove it or add \"{role}\" to the node's roles"
    )]
    WrongRole { node: String, key: &'static str, role: &'static str },
    #[error("`{second}` is a second scheduler beside `{first}`; give one node the role")]
    TwoSchedulers { first: NodeName, second: NodeName },
    #[error("`{text}` is also used by `{first}`; give each node its own (port 0 takes a free port)")]
    SameAddress { text: String, first: NodeName },
    #[error(
        "{address} is not loopback and the file names no keys; add keys = \"DIR\" (made by `rudder keys init`) or bind 127.0.0.1"
    )]
    OpenWithoutKeys { address: std::net::SocketAddr },
    #[error(
        "mover cores {cores} of `{node}` are training cores of `{other}` on machine `{machine}`; choose others, or cores = \"shared\" to allow it"
    )]
    CoresOverlap { node: NodeName, other: NodeName, machine: MachineName, cores: String },
    #[error("cores = \"shared\" and `{key}` contradict each other; remove one of them")]
    SharedAndReserved { key: &'static str },
    #[error("node `{node}` reserves cores but has no `mover_cores`; add mover_cores = \"0-3\" or the like")]
    NoMoverCores { node: String },
    #[error(
        "credits = {credits} with ready_ahead = {ready_ahead} would stall trainers; write at least {least}"
    )]
    TooFewCredits { credits: u32, ready_ahead: u32, least: u32 },
    #[error(
        "credits = {credits} do not let the policy {policy} look {look_ahead} minibatches ahead; write at least {least}, or give the policy less to look at"
    )]
    TooFewCreditsForPolicy { credits: u32, policy: String, look_ahead: u32, least: u32 },
    #[error("the cache of {cache_bytes} bytes is smaller than one block of {block_bytes} bytes; enlarge it")]
    CacheTooSmall { cache_bytes: u64, block_bytes: u64 },
    #[error("the cache is empty; write at least the size of one block")]
    EmptyCache,
}

/// Datasets and who stores their parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("the dataset `{name}` is already on line {first_line}; give each dataset its own name")]
    DuplicateDataset { name: String, first_line: u32 },
    #[error("the dataset `{name}` is unknown; {hint}")]
    UnknownDataset { name: String, hint: NameHint },
    #[error("the file has {count} datasets, so `dataset` must say which; add dataset = \"NAME\"")]
    WhichDataset { count: usize },
    #[error("part {part} of `{dataset}` does not exist; its parts are 0 to {last}")]
    UnknownPart { dataset: String, part: u32, last: u32 },
    #[error("part {part} of `{dataset}` is already placed on line {first_line}; name all its nodes there")]
    DuplicatePart { dataset: String, part: u32, first_line: u32 },
    #[error(
        "nobody stores part {part} of `{dataset}`{more}; add [[parts]] part = {part}, nodes = [\"NODE\"], or placement = \"round_robin\""
    )]
    NotStored { dataset: String, part: u32, more: AndMore },
    #[error("part {part} is on `{node}`, which is unknown; {hint}")]
    UnknownNode { part: u32, node: String, hint: NameHint },
    #[error("part {part} is on `{node}`, which is no storage node; add \"storage\" to its roles")]
    NotStorage { part: u32, node: String },
    #[error("part {part} is on `{node}` twice; name each node once")]
    SameNodeTwice { part: u32, node: String },
    #[error(
        "{replicas} replicas of each part need as many storage nodes and the file has {storage_nodes}; lower `replicas`"
    )]
    TooFewStorageNodes { replicas: u32, storage_nodes: usize },
    #[error("parts times replicas add up to more than {max}; use fewer parts")]
    TooManyReplicas { max: usize },
    #[error(
        "compute node `{node}` reaches no node that stores part {part} of `{dataset}`{more}; add a link or [default_link]"
    )]
    Unreachable { node: NodeName, dataset: String, part: u32, more: AndMore },
}

/// How many more of the same kind an error stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AndMore(pub usize);

impl fmt::Display for AndMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" (and 1 more part)"),
            n => write!(f, " (and {n} more parts)"),
        }
    }
}

/// The file's own name that is nearest to a misspelt one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameHint {
    pub nearest: Option<String>,
    /// What to write where no name is near, such as "name a node of the file".
    pub otherwise: &'static str,
}

impl NameHint {
    pub(crate) fn new<'a>(
        word: &str,
        known: impl Iterator<Item = &'a str>,
        otherwise: &'static str,
    ) -> NameHint {
        let nearest = known
            .map(|k| (edit_distance(word, k), k))
            .min()
            .filter(|&(distance, nearest)| distance <= (nearest.len() / 3).max(1))
            .map(|(_, nearest)| nearest.to_owned());
        NameHint { nearest, otherwise }
    }
}

impl fmt::Display for NameHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nearest {
            Some(nearest) => write!(f, "did you mean `{nearest}`?"),
            None => f.write_str(self.otherwise),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("the link has no ends; write from = \"A\" and to = \"B\", or between = [\"A\", \"B\"]")]
    NoEnds,
    #[error("the link has both `between` and `from` or `to`; keep one form")]
    TwoForms,
    #[error("`between` names {count} nodes; name two")]
    NotTwo { count: usize },
    #[error("[default_link] links every pair; remove `{key}`")]
    EndsOfDefault { key: &'static str },
    #[error("the link leads to `{node}`, which is unknown; {hint}")]
    UnknownNode { node: String, hint: NameHint },
    #[error("the link leads from `{node}` to itself; a node needs no link to itself, remove it")]
    ToItself { node: String },
    #[error("the link from `{from}` to `{to}` is already on line {first_line}; keep one of them")]
    Duplicate { from: String, to: String, first_line: u32 },
    #[error("the bandwidth is zero; write more, or remove the link")]
    ZeroBandwidth,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error("`{key} = \"{text}\"` is out of range; it is from {min} to {max}")]
    Range { key: &'static str, text: String, min: String, max: String },
    #[error("`{smaller}` is larger than `{larger}`; it must not be")]
    Order { smaller: &'static str, larger: &'static str },
}

/// `[advisor]`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdvisorError {
    #[error("the advisor `{backend}` needs `{key}`; add {example}")]
    Needs { backend: &'static str, key: &'static str, example: &'static str },
    // The text is not repeated: people write passwords into it.
    #[error(
        "`url` is no plain address; write http://HOST:PORT or https://HOST:PORT (no user names: the key belongs into `key_file`)"
    )]
    Url,
    #[error("`key_file` and `key_environment` are two places for one key; keep one of them")]
    TwoKeys,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_the_near_and_list_the_rest() {
        const KNOWN: &[&str] = &["cache", "control", "credits"];
        assert_eq!(Hint::new("chache", KNOWN).to_string(), "did you mean `cache`?");
        assert_eq!(Hint::new("zebra", KNOWN).to_string(), "it is one of cache, control, credits");
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
