//! The rules and the controls as back ends: they write their answer as a model would, so that all go the same way.

use crate::backend::{Answering, Backend, Question, Reply};
use rudder_policy::advice::choose::Chooser;
use rudder_policy::advice::schema::option_label;
use serde_json::json;

/// Chooses among the options that the question shows.
#[derive(Clone, Copy, Debug)]
pub struct ChooserBackend(pub Chooser);

impl ChooserBackend {
    /// The answer, which is there at once.
    #[must_use]
    pub fn answer(&self, question: &Question) -> Reply {
        let chosen: Vec<_> =
            self.0.choose(&question.options, question.key).into_iter().map(option_label).collect();
        let text = json!({ "choose": chosen, "reason": self.label() }).to_string().into_bytes();
        Reply { text, ..Reply::default() }
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
