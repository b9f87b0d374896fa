//! TOML text into a [`Spec`]; everything that is not readable is collected with its line.

use crate::spec::{AdvisorSpec, At, ClusterSpec, DatasetSpec, EventSpec, SimulationSpec, Spec, TrainerSpec};
use std::ops::Range;
use toml_edit::{Document, Item, Table, Value};

/// A scenario file larger than this is refused unread.
pub const FILE_BYTES_MAX: usize = 256 << 10;

/// Why a piece of the file could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the file has {bytes} bytes; a scenario has at most {FILE_BYTES_MAX}")]
    TooLarge { bytes: usize },
    #[error("not TOML: {message}")]
    Syntax { message: String },
    #[error("unknown key `{key}`; known here: {known}")]
    UnknownKey { key: String, known: String },
    #[error("`{key}` should be {expected}, such as {example}")]
    WrongType { key: &'static str, expected: &'static str, example: &'static str },
}

/// Reads a file's text. The spec holds what was readable, even where there are errors.
#[must_use]
pub fn parse(text: &str) -> (Spec, Vec<At<ReadError>>) {
    let mut reader = Reader { text, errors: Vec::new() };
    if text.len() > FILE_BYTES_MAX {
        reader.error(0..0, ReadError::TooLarge { bytes: text.len() });
        return (Spec::default(), reader.errors);
    }
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            let message = error.message().lines().next().unwrap_or_default().chars().take(200).collect();
            reader.error(error.span().unwrap_or(0..0), ReadError::Syntax { message });
            return (Spec::default(), reader.errors);
        }
    };
    let spec = reader.file(document.as_table());
    reader.errors.sort_by_key(|error| error.line);
    (spec, reader.errors)
}

struct Reader<'t> {
    text: &'t str,
    errors: Vec<At<ReadError>>,
}

/// The keys of one table, struck off as they are read.
struct Keys<'d> {
    table: Option<&'d Table>,
    known: Vec<&'static str>,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        let end = span.start.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|&&byte| byte == b'\n').count()
    }

    fn error(&mut self, span: Range<usize>, error: ReadError) {
        let line = self.line(&span);
        self.errors.push(At { line, value: error });
    }

    fn file(&mut self, table: &Table) -> Spec {
        let mut keys = Keys { table: Some(table), known: Vec::new() };
        let spec = Spec {
            name: self.text_at(&mut keys, "name"),
            about: self.text_at(&mut keys, "about"),
            seed: self.integer(&mut keys, "seed"),
            arms: self.text_or_texts(&mut keys, "arms"),
            repeats: self.integer(&mut keys, "repeats"),
            mode: self.text_at(&mut keys, "mode"),
            dataset: self.dataset(&mut keys),
            cluster: self.cluster(&mut keys),
            trainer: self.trainer(&mut keys),
            simulation: self.simulation(&mut keys),
            advisor: self.advisor(&mut keys),
            events: self.events(&mut keys),
        };
        self.unknown(&keys);
        spec
    }

    fn dataset(&mut self, file: &mut Keys<'_>) -> DatasetSpec {
        let (line, mut keys) = self.table(file, "dataset");
        let spec = DatasetSpec {
            line,
            import: self.text_at(&mut keys, "import"),
            directory: self.text_at(&mut keys, "directory"),
            statistics: self.text_at(&mut keys, "statistics"),
            parts: self.integer(&mut keys, "parts"),
            rows_per_block: self.integer(&mut keys, "rows_per_block"),
        };
        self.unknown(&keys);
        spec
    }

    fn cluster(&mut self, file: &mut Keys<'_>) -> ClusterSpec {
        let (line, mut keys) = self.table(file, "cluster");
        let spec = ClusterSpec {
            line,
            compute_nodes: self.integer(&mut keys, "compute_nodes"),
            storage_nodes: self.integer(&mut keys, "storage_nodes"),
            trainers_per_node: self.integer(&mut keys, "trainers_per_node"),
            storage_mode: self.text_at(&mut keys, "storage_mode"),
            require_disk: self.flag(&mut keys, "require_disk"),
            cache_share: self.number(&mut keys, "cache_share"),
            bandwidth: self.text_at(&mut keys, "bandwidth"),
            latency: self.text_at(&mut keys, "latency"),
            heartbeat_timeout: self.text_at(&mut keys, "heartbeat_timeout"),
            settle: self.text_at(&mut keys, "settle"),
        };
        self.unknown(&keys);
        spec
    }

    fn trainer(&mut self, file: &mut Keys<'_>) -> TrainerSpec {
        let (line, mut keys) = self.table(file, "trainer");
        let spec = TrainerSpec {
            line,
            seeds: self.integer(&mut keys, "seeds"),
            fanout: self.integers(&mut keys, "fanout"),
            window: self.integer(&mut keys, "window"),
            compute: self.text_at(&mut keys, "compute"),
            allreduce: self.text_at(&mut keys, "allreduce"),
            minibatches: self.integer(&mut keys, "minibatches"),
            fixed_window: self.integer(&mut keys, "fixed_window"),
            replay: self.flag(&mut keys, "replay"),
            verify: self.flag(&mut keys, "verify"),
            command: self.texts(&mut keys, "command"),
            time_limit: self.text_at(&mut keys, "time_limit"),
        };
        self.unknown(&keys);
        spec
    }

    fn simulation(&mut self, file: &mut Keys<'_>) -> SimulationSpec {
        let (line, mut keys) = self.table(file, "simulation");
        let spec = SimulationSpec {
            line,
            jitter: self.number(&mut keys, "jitter"),
            stragglers: self.number(&mut keys, "stragglers"),
            straggler_factor: self.number(&mut keys, "straggler_factor"),
        };
        self.unknown(&keys);
        spec
    }

    fn advisor(&mut self, file: &mut Keys<'_>) -> AdvisorSpec {
        let (line, mut keys) = self.table(file, "advisor");
        let spec = AdvisorSpec {
            line,
            backends: self.texts(&mut keys, "backends"),
            url: self.text_at(&mut keys, "url"),
            model: self.text_at(&mut keys, "model"),
            distilled: self.text_at(&mut keys, "distilled"),
        };
        self.unknown(&keys);
        spec
    }

    fn events(&mut self, file: &mut Keys<'_>) -> Vec<EventSpec> {
        let Some(item) = file.take("event") else { return Vec::new() };
        let Some(tables) = item.as_array_of_tables() else {
            let span = item.span().unwrap_or(0..0);
            let (expected, example) = ("a list of tables", "[[event]]");
            self.error(span, ReadError::WrongType { key: "event", expected, example });
            return Vec::new();
        };
        tables.iter().map(|table| self.event(table)).collect()
    }

    fn event(&mut self, table: &Table) -> EventSpec {
        let mut keys = Keys { table: Some(table), known: Vec::new() };
        let spec = EventSpec {
            line: self.line(&table.span().unwrap_or(0..0)),
            at: self.text_at(&mut keys, "at"),
            link: self.text_at(&mut keys, "link"),
            node: self.text_at(&mut keys, "node"),
            bandwidth: self.text_at(&mut keys, "bandwidth"),
            cache_share: self.number(&mut keys, "cache_share"),
            down: self.flag(&mut keys, "down"),
            up: self.flag(&mut keys, "up"),
            minibatch: self.integer(&mut keys, "minibatch"),
            join: self.flag(&mut keys, "join"),
            trainers_per_node: self.integer(&mut keys, "trainers_per_node"),
            window: self.integer(&mut keys, "window"),
            seeds: self.integer(&mut keys, "seeds"),
            fanout: self.integers(&mut keys, "fanout"),
            compute: self.text_at(&mut keys, "compute"),
            minibatches: self.integer(&mut keys, "minibatches"),
        };
        self.unknown(&keys);
        spec
    }

    fn table<'d>(&mut self, keys: &mut Keys<'d>, key: &'static str) -> (usize, Keys<'d>) {
        let none = Keys { table: None, known: Vec::new() };
        let Some(item) = keys.take(key) else { return (1, none) };
        let span = item.span().unwrap_or(0..0);
        let line = self.line(&span);
        match item.as_table() {
            Some(table) => (line, Keys { table: Some(table), known: Vec::new() }),
            None => {
                self.error(span, ReadError::WrongType { key, expected: "a table", example: "[table]" });
                (line, none)
            }
        }
    }

    fn value<T>(
        &mut self,
        keys: &mut Keys<'_>,
        key: &'static str,
        (expected, example): (&'static str, &'static str),
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<At<T>> {
        let item = keys.take(key)?;
        let span = item.span().unwrap_or(0..0);
        let line = self.line(&span);
        match item.as_value().and_then(read) {
            Some(value) => Some(At { line, value }),
            None => {
                self.error(span, ReadError::WrongType { key, expected, example });
                None
            }
        }
    }

    fn text_at(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<String>> {
        self.value(keys, key, ("text", "\"text\""), |value| value.as_str().map(str::to_owned))
    }

    fn integer(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<i64>> {
        self.value(keys, key, ("a whole number", "8"), Value::as_integer)
    }

    fn number(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<f64>> {
        let read = |value: &Value| value.as_float().or(value.as_integer().map(|whole| whole as f64));
        self.value(keys, key, ("a number", "0.25"), read)
    }

    fn flag(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<bool>> {
        self.value(keys, key, ("true or false", "true"), Value::as_bool)
    }

    fn texts(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<Vec<String>>> {
        self.value(keys, key, ("a list of texts", "[\"a\", \"b\"]"), |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    fn text_or_texts(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<Vec<String>>> {
        self.value(keys, key, ("a text or a list of texts", "[\"a\", \"b\"]"), |value| match value.as_str() {
            Some(text) => Some(vec![text.to_owned()]),
            None => value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        })
    }

    fn integers(&mut self, keys: &mut Keys<'_>, key: &'static str) -> Option<At<Vec<i64>>> {
        self.value(keys, key, ("a list of whole numbers", "[10, 5]"), |value| {
            value.as_array()?.iter().map(Value::as_integer).collect()
        })
    }

    fn unknown(&mut self, keys: &Keys<'_>) {
        let Some(table) = keys.table else { return };
        for (key, item) in table {
            if !keys.known.contains(&key) {
                let span = table.key(key).and_then(|key| key.span()).or(item.span()).unwrap_or(0..0);
                let key = key.chars().take(60).collect();
                self.error(span, ReadError::UnknownKey { key, known: keys.known.join(", ") });
            }
        }
    }
}

impl<'d> Keys<'d> {
    fn take(&mut self, key: &'static str) -> Option<&'d Item> {
        self.known.push(key);
        self.table?.get(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_error_has_its_line() {
        let text = "name = 3\nrepeats = 2\n\n[cluster]\ncompute_nodes = \"two\"\ncache_share = 1\nspeed = 1\n\n[trainer]\nfanout = [10, \"x\"]\n[extra]\n";
        let (spec, errors) = parse(text);
        let lines: Vec<_> = errors.iter().map(|error| (error.line, error.value.to_string())).collect();
        assert_eq!(lines.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 5, 7, 10, 11], "{lines:?}");
        assert!(lines[2].1.contains("`speed`") && lines[2].1.contains("bandwidth"), "{lines:?}");
        assert_eq!(spec.repeats, Some(At { line: 2, value: 2 }));
        assert_eq!(spec.cluster.cache_share, Some(At { line: 6, value: 1.0 }));
        assert_eq!((spec.cluster.line, spec.trainer.line), (4, 9));
    }

    #[test]
    fn what_is_no_toml_is_one_error() {
        for text in ["[", "a = = 1", "name = \"x", "\u{0}"] {
            let (spec, errors) = parse(text);
            assert_eq!(spec, Spec::default(), "{text}");
            assert!(matches!(errors[..], [At { value: ReadError::Syntax { .. }, .. }]), "{text}");
        }
        let (_, errors) = parse(&"#".repeat(FILE_BYTES_MAX + 1));
        assert!(matches!(errors[..], [At { value: ReadError::TooLarge { .. }, .. }]));
    }

    #[test]
    fn a_value_where_a_table_should_be_is_refused() {
        let (_, errors) = parse("dataset = 1\ncluster = [1]\n");
        assert_eq!(errors.len(), 2, "{errors:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(name|arms|\\[cluster\\]|\\[|=|\"|1|\n| ){0,30}") {
            let _ = parse(&text);
        }
    }
}
