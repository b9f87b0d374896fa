//! The trait of everything that can be asked.

use rudder_graph::random::Key;
use rudder_policy::advice::options::Options;
use rudder_policy::advice::prompt::Prompt;
use rudder_policy::advice::state::ClusterState;
use std::pin::Pin;
use std::time::Duration;

/// What an advisor is asked. Models read the prompt; rules and controls read the options that it shows.
#[derive(Clone, Debug)]
pub struct Question {
    pub prompt: Prompt,
    pub options: Options,
    /// What the report in the prompt was made of.
    pub state: ClusterState,
    /// Where a control's randomness comes from.
    pub key: Key,
    /// What is left of the consult's time.
    pub time_max: Duration,
}

/// What was answered: the text as it came, to be understood by the parser, whoever wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub text: Vec<u8>,
    /// As the server counted them.
    pub prompt_tokens: Option<u64>,
    pub answer_tokens: Option<u64>,
}

/// Why there was no answer. Never holds what a server sent, nor a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    #[error("the server cannot be reached: {reason}")]
    Unreachable { reason: String },
    #[error("the server answered with status {status}")]
    Status { status: u16 },
    #[error("no answer within {within:?}")]
    Deadline { within: Duration },
    #[error("the answer broke off: {reason}")]
    Cut { reason: String },
    #[error("the answer has more than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error("the answer is not what {api} sends: {what}")]
    Malformed { api: &'static str, what: &'static str },
    #[error("the server has no model `{model}`; load it there, or name another in [advisor]")]
    NoModel { model: String },
    #[error("{what} cannot be read: {reason}")]
    File { what: &'static str, reason: String },
    #[error("the recorded answers are used up")]
    NoMoreAnswers,
}

/// An answer on its way.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, BackendError>> + Send + 'a>>;

/// Something that can be asked.
pub trait Backend: Send + Sync {
    /// As in the topology file, with the model where there is one.
    fn name(&self) -> String;

    /// Asks. May take as long as it likes: whoever asks watches the time.
    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a>;
}
