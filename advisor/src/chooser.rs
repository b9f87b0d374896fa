//! The rules, the controls and the distilled advisor as back ends: they write their answer as a language model would,
//! so that all go the same way.

use crate::backend::{Answering, Backend, Question, Reply};
use rudder_policy::advice::choose::Chooser;
use rudder_policy::advice::distilled::Distilled;
use rudder_policy::advice::schema::option_label;
use serde_json::json;

/// Chooses among the options that the question shows.
#[derive(Clone, Copy, Debug)]
pub struct ChooserBackend(pub Chooser);

impl ChooserBackend {
    /// The answer, which is there at once.
    #[must_use]
    pub fn answer(&self, question: &Question) -> Reply {
        reply(self.0.choose(&question.options, question.key), self.label())
    }

    fn label(&self) -> &'static str {
        match self.0 {
            Chooser::Rules => "rules",
            Chooser::Never => "never",
            Chooser::Always => "always",
            Chooser::Random => "random",
            Chooser::First => "first",
        }
    }
}

impl Backend for ChooserBackend {
    fn name(&self) -> String {
        self.label().to_owned()
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a> {
        Box::pin(std::future::ready(Ok(self.answer(question))))
    }
}

/// Answers like the best past directives.
#[derive(Clone, Debug)]
pub struct DistilledBackend(pub Distilled);

impl Backend for DistilledBackend {
    fn name(&self) -> String {
        "distilled".to_owned()
    }

    fn ask<'a>(&'a self, question: &'a Question) -> Answering<'a> {
        let chosen = self.0.choose(&question.options, &question.state);
        Box::pin(std::future::ready(Ok(reply(chosen, "distilled"))))
    }
}

fn reply(chosen: Vec<usize>, reason: &str) -> Reply {
    let chosen: Vec<_> = chosen.into_iter().map(option_label).collect();
    let text = json!({ "choose": chosen, "reason": reason }).to_string().into_bytes();
    Reply { text, ..Reply::default() }
}
