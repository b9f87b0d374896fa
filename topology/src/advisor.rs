//! Which advisor the planners consult, as the topology file's `[advisor]` says it.

use crate::units::Nanos;
use std::path::PathBuf;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisorBackend {
    /// Ollama where one answers, else the rules; the node says which it took.
    Auto,
    Ollama,
    /// Any server that speaks OpenAI's chat completions: vLLM, llama.cpp.
    OpenAi,
    /// The built-in rules.
    Rules,
    /// Recorded answers.
    Replay,
    /// Controls: no action, every option, half of the options, the first one shown.
    Never,
    Always,
    Random,
    First,
    /// A small model learned from the best past directives.
    Distilled,
}

impl AdvisorBackend {
    pub const ALL: [AdvisorBackend; 10] = [
        AdvisorBackend::Auto,
        AdvisorBackend::Ollama,
        AdvisorBackend::OpenAi,
        AdvisorBackend::Rules,
        AdvisorBackend::Replay,
        AdvisorBackend::Never,
        AdvisorBackend::Always,
        AdvisorBackend::Random,
        AdvisorBackend::First,
        AdvisorBackend::Distilled,
    ];

    /// Its name in the topology file, and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The back end of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }
}

/// Names in the order of the variants.
pub(crate) const NAMES: &[&str] =
    &["auto", "ollama", "openai", "rules", "replay", "never", "always", "random", "first", "distilled"];

/// How a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerForm {
    /// It chooses among options that code made: what small models can do.
    Options,
    /// It writes actions.
    Actions,
}

/// Where a secret is. It is read when it is needed and never shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPlace {
    File(PathBuf),
    /// The environment variable of this name.
    Environment(String),
}

/// `[advisor]`, with defaults for what is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisor {
    pub backend: AdvisorBackend,
    /// `http://` or `https://`, and nothing behind the port but, for `openai`, the path before `/chat/completions`.
    pub url: Option<String>,
    pub model: Option<String>,
    pub form: AnswerForm,
    /// For one consult with all its attempts.
    pub deadline: Nanos,
    pub attempts: u32,
    /// Tokens of an answer.
    pub answer_tokens_max: u32,
    /// The model's context: prompt and answer.
    pub context_tokens: u32,
    /// How long Ollama keeps the model loaded after a consult.
    pub keep_alive: Nanos,
    /// Cosine similarity of two states, in percent, from which on a directive is used again.
    pub similarity_percent: u32,
    pub key: Option<SecretPlace>,
    /// Certificates in PEM form of who may vouch for an `https` server; `None` trusts whom the system trusts.
    pub authority: Option<PathBuf>,
    /// Of `replay`: one answer a line.
    pub replay: Option<PathBuf>,
    /// Where experience is kept; `None` keeps none.
    pub experience: Option<PathBuf>,
    /// The evaluator that `rudder experience train` wrote; `None` takes the closed form.
    pub evaluator: Option<PathBuf>,
    /// Of `distilled`: the model that `rudder experience train` wrote.
    pub distilled: Option<PathBuf>,
}

impl Default for Advisor {
    fn default() -> Self {
        Advisor {
            backend: AdvisorBackend::Rules,
            url: None,
            model: None,
            form: AnswerForm::Options,
            deadline: Nanos::from_secs(20),
            attempts: 2,
            answer_tokens_max: 200,
            context_tokens: 4096,
            keep_alive: Nanos::from_secs(600),
            similarity_percent: 98,
            key: None,
            authority: None,
            replay: None,
            experience: None,
            evaluator: None,
            distilled: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_the_variants() {
        for (backend, name) in AdvisorBackend::ALL.into_iter().zip(NAMES) {
            assert_eq!((backend.name(), AdvisorBackend::named(name)), (*name, Some(backend)));
        }
        assert_eq!(AdvisorBackend::ALL.len(), NAMES.len());
        assert_eq!(AdvisorBackend::named("oracle"), None);
    }
}
