//! What a trainer says on its standard output: one JSON object a line.
//!
//! A scenario's trainer may be any command line that prints these lines; nothing else may stand on its standard
//! output. Times are nanoseconds; `at_ns` counts from the Unix epoch, all others are durations. Unknown keys are
//! ignored, so that either side may be newer.
//!
//! ```text
//! {"event":"listening","ring":"10.0.0.3:40123"}    only where gradients are summed: the ring's own address is bound;
//!                                                 one line with all addresses in rank order follows on standard input
//! {"event":"started","rank":0,"at_ns":...}
//! {"event":"step","minibatch":0,"at_ns":...,"step_ns":...,"wait_ns":...,"sample_ns":...,"gather_ns":...,
//!  "allreduce_ns":...,"rows":...,"bytes":...,"bytes_wrong":...}
//! {"event":"finished","minibatches":100,"bytes_wrong":0,"trace_digest":"..."}
//! {"event":"failed","reason":"..."}
//! ```

use rudder_topology::{MinibatchId, TrainerRank};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A line longer than this is refused unread.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Listening { ring: SocketAddr },
    Started { rank: TrainerRank, at_ns: u64 },
    Step(Step),
    Finished(Finished),
    Failed { reason: String },
}

/// One minibatch, from asking for it to the end of its all-reduce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub minibatch: MinibatchId,
    /// When the step ended.
    pub at_ns: u64,
    /// The whole step, waiting included.
    pub step_ns: u64,
    /// From asking for the minibatch until its rows lie in one buffer, and sampling that did not fit into the compute.
    pub wait_ns: u64,
    #[serde(default)]
    pub sample_ns: u64,
    #[serde(default)]
    pub gather_ns: u64,
    #[serde(default)]
    pub allreduce_ns: u64,
    /// Rows gathered, local ones included.
    #[serde(default)]
    pub rows: u64,
    /// Bytes gathered.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes that differ from the dataset; zero where nothing is verified.
    #[serde(default)]
    pub bytes_wrong: u64,
}

/// The end of a run that went well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    pub minibatches: u64,
    #[serde(default)]
    pub bytes_wrong: u64,
    /// Hex digest of all row ids in order; equal digests mean the same trace. Empty where the trainer has none.
    #[serde(default)]
    pub trace_digest: String,
}

/// Why a line was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EventError {
    #[error("a trainer's line of {bytes} bytes is longer than {LINE_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("a trainer's line is no event ({reason}): `{start}`")]
    Malformed { reason: String, start: String },
    #[error("a step of {step_ns} ns cannot have waited {wait_ns} ns")]
    Impossible { step_ns: u64, wait_ns: u64 },
}

impl Event {
    /// Reads one line.
    pub fn parse(line: &str) -> Result<Event, EventError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(EventError::TooLong { bytes: line.len() });
        }
        let event = serde_json::from_str(line).map_err(|error| EventError::Malformed {
            reason: error.to_string(),
            start: line.chars().take(80).collect(),
        })?;
        match event {
            Event::Step(Step { step_ns, wait_ns, .. }) if wait_ns > step_ns => {
                Err(EventError::Impossible { step_ns, wait_ns })
            }
            event => Ok(event),
        }
    }

    /// The event as one line, newline included.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("events have string keys and finite numbers");
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_read_back() {
        let events = [
            Event::Listening { ring: "127.0.0.1:9".parse().unwrap() },
            Event::Started { rank: TrainerRank(3), at_ns: 1 },
            Event::Step(Step { minibatch: MinibatchId(7), step_ns: 10, wait_ns: 10, ..Step::default() }),
            Event::Finished(Finished { minibatches: 2, bytes_wrong: 0, trace_digest: "ab".into() }),
            Event::Failed { reason: "a \"reason\"\nin two lines".into() },
        ];
        for event in events {
            let line = event.line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(Event::parse(line.trim_end()), Ok(event));
        }
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let long = format!("{{\"event\":\"failed\",\"reason\":\"{}\"}}", "x".repeat(LINE_BYTES_MAX));
        assert!(matches!(Event::parse(&long), Err(EventError::TooLong { .. })));
        for line in [
            "",
            "{",
            "null",
            "[]",
            r#"{"event":"dance"}"#,
            r#"{"event":"step"}"#,
            r#"{"event":"step","minibatch":-1,"at_ns":0,"step_ns":1,"wait_ns":0}"#,
            r#"{"event":"step","minibatch":0,"at_ns":0,"step_ns":1e40,"wait_ns":0}"#,
            r#"{"event":"listening","ring":"nowhere"}"#,
        ] {
            assert!(matches!(Event::parse(line), Err(EventError::Malformed { .. })), "{line}");
        }
        let line = r#"{"event":"step","minibatch":0,"at_ns":0,"step_ns":1,"wait_ns":2}"#;
        assert_eq!(Event::parse(line), Err(EventError::Impossible { step_ns: 1, wait_ns: 2 }));
    }

    #[test]
    fn unknown_keys_are_ignored() {
        let line = r#"{"event":"started","rank":1,"at_ns":2,"later":[1]}"#;
        assert_eq!(Event::parse(line), Ok(Event::Started { rank: TrainerRank(1), at_ns: 2 }));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(line in ".{0,200}") {
            let _ = Event::parse(&line);
        }

        #[test]
        fn cut_lines_are_refused(cut in 0_usize..60) {
            let line = Event::Started { rank: TrainerRank(3), at_ns: 12_345_678_901 }.line();
            let line = line.trim_end();
            prop_assume!(cut < line.len());
            prop_assert!(Event::parse(&line[..cut]).is_err());
        }
    }
}
