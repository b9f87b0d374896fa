//! Recorded answers, one a line, given in turn.

use crate::backend::{Answering, Backend, BackendError, Question, Reply};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A recording is read whole.
const RECORDING_BYTES_MAX: u64 = 64 << 20;

/// A recording, and how far it was played.
#[derive(Debug)]
pub struct Replay {
    answers: Mutex<VecDeque<Vec<u8>>>,
}

impl Replay {
    #[must_use]
    pub fn new(answers: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Replay { answers: Mutex::new(answers.into_iter().collect()) }
    }

    /// Reads a recording: each line is an answer as it came.
    pub fn open(path: &Path) -> Result<Self, BackendError> {
        let fail = |reason: String| BackendError::File { what: "the recording that `replay` names", reason };
        let length = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
        if length > RECORDING_BYTES_MAX {
            return Err(fail(format!("it has more than {RECORDING_BYTES_MAX} bytes")));
        }
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        Ok(Replay::new(lines.map(<[u8]>::to_vec)))
    }
}

impl Backend for Replay {
    fn name(&self) -> String {
        "replay".to_owned()
    }

    fn ask<'a>(&'a self, _question: &'a Question) -> Answering<'a> {
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let reply = next.map(|text| Reply { text, ..Reply::default() });
        Box::pin(std::future::ready(reply.ok_or(BackendError::NoMoreAnswers)))
    }
}
