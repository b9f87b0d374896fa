//! TOML text to [`ClusterSpec`], remembering the line of every key.

mod policy;

use super::{AdvisorSpec, ClusterSpec, DatasetSpec, LimitsSpec, LinkSpec, NodeSpec, PartSpec};
use crate::error::{Hint, SpecError, TopologyError, TopologyErrorKind, TopologyErrors};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml_edit::{Document, Item, TableLike, Value};

/// Errors beyond this many are not kept: a file so wrong is not a topology file.
const ERRORS_MAX: usize = 500;

const FILE_KEYS: &[&str] =
    &["keys", "defaults", "nodes", "datasets", "parts", "links", "default_link", "limits", "advisor"];
const NODE_KEYS: &[&str] = &[
    "name",
    "machine",
    "roles",
    "control",
    "data",
    "trainer_socket",
    "cache",
    "policy",
    "ready_ahead",
    "credits",
    "storage_directory",
    "storage_mode",
    "hot_cache",
    "staging",
    "cores",
    "mover_cores",
    "training_cores",
];
const DATASET_KEYS: &[&str] = &["name", "directory", "parts", "placement", "replicas", "block_bytes_max"];
const PART_KEYS: &[&str] = &["dataset", "part", "nodes"];
const LINK_KEYS: &[&str] = &["from", "to", "between", "bandwidth", "latency"];
const LIMIT_KEYS: &[&str] = &[
    "link_in_flight_bytes",
    "node_in_flight_bytes",
    "transfer_bytes_max",
    "transfer_timeout",
    "heartbeat_timeout",
    "link_rate_max",
];
const ADVISOR_KEYS: &[&str] = &[
    "backend",
    "url",
    "model",
    "form",
    "deadline",
    "attempts",
    "answer_tokens_max",
    "context_tokens",
    "keep_alive",
    "similarity_percent",
    "key_file",
    "key_environment",
    "replay",
    "experience",
    "evaluator",
    "distilled",
    "authority",
];

/// The file's lines and what was found wrong so far.
pub(crate) struct Source {
    file: PathBuf,
    line_starts: Vec<usize>,
    /// Line by dotted path, such as `nodes.3.cache`.
    lines: HashMap<String, u32>,
    errors: Vec<TopologyError>,
    seen: HashSet<(Option<u32>, String)>,
}

impl Source {
    pub(crate) fn new(text: &str, file: &Path) -> Source {
        let newlines = text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(at, _)| at + 1);
        Source {
            file: file.to_owned(),
            line_starts: std::iter::once(0).chain(newlines).collect(),
            lines: HashMap::new(),
            errors: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// The line of a dotted path, or of the nearest enclosing table that has one.
    pub(crate) fn line(&self, path: &str) -> Option<u32> {
        let mut path = path;
        loop {
            if let Some(&line) = self.lines.get(path) {
                return Some(line);
            }
            path = &path[..path.rfind('.')?];
        }
    }

    /// Whether the file has this key, readable or not: an unreadable one is not reported as missing as well.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.lines.contains_key(path)
    }

    pub(crate) fn error(&mut self, path: &str, kind: impl Into<TopologyErrorKind>) {
        let line = self.line(path);
        self.error_at(line, kind.into());
    }

    fn error_at(&mut self, line: Option<u32>, kind: TopologyErrorKind) {
        if self.is_full() {
            return;
        }
        // A default that is wrong is wrong for every node, and worth one message.
        if self.seen.insert((line, kind.to_string())) {
            self.errors.push(TopologyError { file: self.file.clone(), line, kind });
        }
    }

    /// No more errors are kept, so none need be explained well.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.len() >= ERRORS_MAX
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn finish(mut self) -> TopologyErrors {
        self.errors.sort_by_key(|error| error.line);
        TopologyErrors { errors: self.errors }
    }

    fn line_of(&self, span: Option<Range<usize>>) -> Option<u32> {
        let start = span?.start;
        u32::try_from(self.line_starts.partition_point(|&line| line <= start)).ok()
    }
}

/// What can be read of the text; the errors stay in `source`.
pub(crate) fn read(text: &str, source: &mut Source) -> ClusterSpec {
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let message = clip(error.message().trim_end());
            let line = source.line_of(error.span());
            source.error_at(line, SpecError::Syntax { message }.into());
            return ClusterSpec::default();
        }
    };
    let mut root = Reader::new(source, document.as_table(), "", "the file", FILE_KEYS);
    ClusterSpec {
        keys: root.string("keys"),
        defaults: root.table("defaults", "[defaults]", NODE_KEYS, node).unwrap_or_default(),
        nodes: root.tables("nodes", "[[nodes]]", NODE_KEYS, node),
        datasets: root.tables("datasets", "[[datasets]]", DATASET_KEYS, dataset),
        parts: root.tables("parts", "[[parts]]", PART_KEYS, part),
        links: root.tables("links", "[[links]]", LINK_KEYS, link),
        default_link: root.table("default_link", "[default_link]", LINK_KEYS, link),
        limits: root.table("limits", "[limits]", LIMIT_KEYS, limits).unwrap_or_default(),
        advisor: root.table("advisor", "[advisor]", ADVISOR_KEYS, advisor),
    }
}

fn node(r: &mut Reader<'_>) -> NodeSpec {
    NodeSpec {
        name: r.string("name"),
        machine: r.string("machine"),
        roles: r.strings("roles"),
        control: r.string("control"),
        data: r.string("data"),
        trainer_socket: r.string("trainer_socket"),
        cache: r.quantity("cache"),
        policy: r.policy("policy"),
        ready_ahead: r.number("ready_ahead"),
        credits: r.number("credits"),
        storage_directory: r.string("storage_directory"),
        storage_mode: r.string("storage_mode"),
        hot_cache: r.quantity("hot_cache"),
        staging: r.quantity("staging"),
        cores: r.string("cores"),
        mover_cores: r.string("mover_cores"),
        training_cores: r.string("training_cores"),
    }
}

fn dataset(r: &mut Reader<'_>) -> DatasetSpec {
    DatasetSpec {
        name: r.string("name"),
        directory: r.string("directory"),
        parts: r.number("parts"),
        placement: r.string("placement"),
        replicas: r.number("replicas"),
        block_bytes_max: r.quantity("block_bytes_max"),
    }
}

fn part(r: &mut Reader<'_>) -> PartSpec {
    PartSpec { dataset: r.string("dataset"), part: r.number("part"), nodes: r.strings("nodes") }
}

fn link(r: &mut Reader<'_>) -> LinkSpec {
    LinkSpec {
        from: r.string("from"),
        to: r.string("to"),
        between: r.strings("between"),
        bandwidth: r.string("bandwidth"),
        latency: r.string("latency"),
    }
}

fn limits(r: &mut Reader<'_>) -> LimitsSpec {
    LimitsSpec {
        link_in_flight_bytes: r.quantity("link_in_flight_bytes"),
        node_in_flight_bytes: r.quantity("node_in_flight_bytes"),
        transfer_bytes_max: r.quantity("transfer_bytes_max"),
        transfer_timeout: r.string("transfer_timeout"),
        heartbeat_timeout: r.string("heartbeat_timeout"),
        link_rate_max: r.string("link_rate_max"),
    }
}

fn advisor(r: &mut Reader<'_>) -> AdvisorSpec {
    AdvisorSpec {
        backend: r.string("backend"),
        url: r.string("url"),
        model: r.string("model"),
        form: r.string("form"),
        deadline: r.string("deadline"),
        attempts: r.number("attempts"),
        answer_tokens_max: r.number("answer_tokens_max"),
        context_tokens: r.number("context_tokens"),
        keep_alive: r.string("keep_alive"),
        similarity_percent: r.number("similarity_percent"),
        key_file: r.string("key_file"),
        key_environment: r.string("key_environment"),
        replay: r.string("replay"),
        experience: r.string("experience"),
        evaluator: r.string("evaluator"),
        distilled: r.string("distilled"),
        authority: r.string("authority"),
    }
}

/// Reads the keys of one table and reports what is unknown or of the wrong type.
struct Reader<'a> {
    source: &'a mut Source,
    table: &'a dyn TableLike,
    path: String,
}

impl<'a> Reader<'a> {
    fn new(
        source: &'a mut Source,
        table: &'a dyn TableLike,
        path: &str,
        shown: &'static str,
        known: &'static [&'static str],
    ) -> Self {
        let reader = Reader { source, table, path: path.to_owned() };
        for (key, item) in table.iter() {
            let line = reader.source.line_of(table.key(key).and_then(|k| k.span()).or_else(|| item.span()));
            if known.contains(&key) {
                let path = reader.path_of(key);
                if let Some(line) = line {
                    reader.source.lines.insert(path, line);
                }
            } else if !reader.source.is_full() {
                let error =
                    SpecError::UnknownKey { key: clip(key), table: shown, hint: Hint::new(key, known) };
                let line = line.or_else(|| reader.source.line(path));
                reader.source.error_at(line, error.into());
            }
        }
        reader
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn wrong_type(&mut self, key: &str, item: &Item, expected: &'static str) {
        let path = self.path_of(key);
        let error = SpecError::WrongType { key: key.to_owned(), found: type_of(item), expected };
        self.source.error(&path, error);
    }

    fn string(&mut self, key: &'static str) -> Option<String> {
        let item = self.table.get(key)?;
        let text = item.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(key, item, "a text in quotes");
        }
        text
    }

    /// A size: a text with its unit, or a plain number of bytes.
    fn quantity(&mut self, key: &'static str) -> Option<String> {
        let item = self.table.get(key)?;
        let text = match item.as_integer() {
            Some(number) => Some(number.to_string()),
            None => item.as_str().map(str::to_owned),
        };
        if text.is_none() {
            self.wrong_type(key, item, "a size such as \"64MiB\"");
        }
        text
    }

    fn number(&mut self, key: &'static str) -> Option<u32> {
        let item = self.table.get(key)?;
        let Some(value) = item.as_integer() else {
            self.wrong_type(key, item, "a whole number");
            return None;
        };
        let number = u32::try_from(value).ok();
        if number.is_none() {
            let path = self.path_of(key);
            let error = SpecError::Range { key: key.to_owned(), value, min: 0, max: u64::from(u32::MAX) };
            self.source.error(&path, error);
        }
        number
    }

    /// A number that may have a fraction.
    fn fraction(&mut self, key: &'static str) -> Option<f64> {
        let item = self.table.get(key)?;
        let number = item.as_float().or_else(|| item.as_integer().map(|whole| whole as f64));
        if number.is_none() {
            self.wrong_type(key, item, "a number");
        }
        number
    }

    fn numbers(&mut self, key: &'static str) -> Option<Vec<u32>> {
        let item = self.table.get(key)?;
        let number = |value: &Value| u32::try_from(value.as_integer()?).ok();
        let numbers = item.as_array().and_then(|array| array.iter().map(number).collect());
        if numbers.is_none() {
            self.wrong_type(key, item, "a list of whole numbers such as [15, 10, 5]");
        }
        numbers
    }

    fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let item = self.table.get(key)?;
        let texts = item
            .as_array()
            .and_then(|array| array.iter().map(|value| value.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.wrong_type(key, item, "a list of texts such as [\"a\", \"b\"]");
        }
        texts
    }

    fn table<T>(
        &mut self,
        key: &'static str,
        shown: &'static str,
        known: &'static [&'static str],
        read: fn(&mut Reader<'_>) -> T,
    ) -> Option<T> {
        let item = self.table.get(key)?;
        let Some(table) = item.as_table_like() else {
            self.wrong_type(key, item, "a table");
            return None;
        };
        let path = self.path_of(key);
        Some(read(&mut Reader::new(self.source, table, &path, shown, known)))
    }

    fn tables<T>(
        &mut self,
        key: &'static str,
        shown: &'static str,
        known: &'static [&'static str],
        read: fn(&mut Reader<'_>) -> T,
    ) -> Vec<T> {
        let Some(item) = self.table.get(key) else { return Vec::new() };
        let Some(tables) = list_of_tables(item) else {
            self.wrong_type(key, item, shown);
            return Vec::new();
        };
        let mut list = Vec::with_capacity(tables.len());
        for (n, (table, span)) in tables.into_iter().enumerate() {
            let path = format!("{key}.{n}");
            if let Some(line) = self.source.line_of(span) {
                self.source.lines.insert(path.clone(), line);
            }
            list.push(read(&mut Reader::new(self.source, table, &path, shown, known)));
        }
        list
    }
}

type Tables<'a> = Vec<(&'a dyn TableLike, Option<Range<usize>>)>;

fn list_of_tables(item: &Item) -> Option<Tables<'_>> {
    if let Some(tables) = item.as_array_of_tables() {
        return Some(tables.iter().map(|table| (table as &dyn TableLike, table.span())).collect());
    }
    item.as_array()?
        .iter()
        .map(|value| value.as_inline_table().map(|table| (table as &dyn TableLike, table.span())))
        .collect()
}

fn type_of(item: &Item) -> &'static str {
    match item {
        Item::None => "nothing",
        Item::Value(Value::String(_)) => "a text",
        Item::Value(Value::Integer(_)) => "a whole number",
        Item::Value(Value::Float(_)) => "a fraction",
        Item::Value(Value::Boolean(_)) => "true or false",
        Item::Value(Value::Datetime(_)) => "a date",
        Item::Value(Value::Array(_)) => "a list",
        Item::Value(Value::InlineTable(_)) | Item::Table(_) => "a table",
        Item::ArrayOfTables(_) => "a list of tables",
    }
}

/// The start of a text from the file, short enough for a message.
pub(crate) fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
    if clipped.len() < text.len() && text.chars().count() > 80 {
        clipped.push('…');
    }
    clipped
}
