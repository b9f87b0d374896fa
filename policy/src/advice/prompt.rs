//! The question to a model: few words, a constant budget, one worked example.

use super::directive::Action;
use super::labels::Labels;
use super::lever::{Field, Kind, LEVERS, Vocabulary};
use super::options::Options;
use super::parse::Refused;
use super::report::REPORT_BYTES_MAX;
use super::schema::{Form, actions_schema, option_label, options_schema};
use serde_json::Value;

/// A prompt never has more bytes than this, on any cluster; the schema comes apart.
pub const PROMPT_BYTES_MAX: usize = REPORT_BYTES_MAX + 3200;

/// Refusals of the last answer that are told.
const REFUSALS_TOLD: usize = 3;

/// What a model is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    pub system: &'static str,
    pub user: String,
    /// The JSON schema that the answer has to keep.
    pub schema: Value,
}

const SYSTEM: &str = "You steer the data movement of a training cluster. C0, C1, ... are compute nodes that wait for \
data, S0, S1, ... are storage nodes. Your aim: trainers wait less over the next minutes. Do not load busy links. \
Doing nothing is a good answer when nothing fits. Answer with JSON only.";

const OPTIONS_EXAMPLE: &str = "Example. A: posture C7 demand_first; B: stage S9-C7 through S8 (S9-C7 is slower than it \
was). Answer: {\"choose\":[\"B\"],\"reason\":\"S9-C7 is slow, S8-C7 is not\"}";

const ACTIONS_EXAMPLE: &str = "Example. S9-C7 is slower than it was. Answer: {\"actions\":[{\"lever\":\"stage\",\
\"link\":\"S9-C7\",\"through\":\"S8\",\"ttl_s\":600}],\"reason\":\"S9-C7 is slow, S8-C7 is not\"}";

/// The question whether to take any of the options, or which actions to take.
#[must_use]
pub fn prompt(
    form: Form,
    report: &str,
    options: &Options,
    vocabulary: &Vocabulary,
    refusals: &[Refused],
    labels: &Labels,
) -> Prompt {
    let mut user = format!("State:\n{report}\n");
    for refused in refusals.iter().take(REFUSALS_TOLD) {
        user += &format!("Your last answer was refused in part: {refused}.\n");
    }
    let (question, schema) = match form {
        Form::Options => (options_question(&options.actions(), labels), options_schema(options.shown.len())),
        Form::Actions => (actions_question(vocabulary), actions_schema(vocabulary)),
    };
    user += &question;
    debug_assert!(SYSTEM.len() + user.len() <= PROMPT_BYTES_MAX);
    Prompt { system: SYSTEM, user, schema }
}

fn options_question(options: &[Action], labels: &Labels) -> String {
    let mut text = format!("{OPTIONS_EXAMPLE}\nOptions now:\n");
    for (index, option) in options.iter().enumerate() {
        text += &format!("{}: {}\n", option_label(index), option.describe(labels));
    }
    text + "Which of them should be taken, if any?"
}

fn actions_question(vocabulary: &Vocabulary) -> String {
    let mut text = format!("{ACTIONS_EXAMPLE}\nLevers:\n");
    for lever in LEVERS.iter().filter(|lever| vocabulary.offers(lever)) {
        let fields: Vec<_> = lever.fields.iter().map(|field| describe(field, vocabulary)).collect();
        text += &format!("{}: {}. {}\n", lever.name, lever.what, fields.join("; "));
    }
    text + "Which at most five actions should be taken now, if any?"
}

fn describe(field: &Field, vocabulary: &Vocabulary) -> String {
    match field.kind {
        Kind::Integer { min, max } => format!("{} {min} to {max}", field.name),
        Kind::Choice(choices) => format!("{} {}", field.name, choices.join(" ")),
        kind => {
            let names: Vec<_> = vocabulary.entries(kind).iter().map(|(name, _)| name.as_str()).collect();
            format!("{} {}", field.name, names.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::options;
    use crate::advice::parse::RefusalReason;
    use crate::advice::parse::tests::{labels, state, vocabulary};
    use rudder_graph::random::Key;

    #[test]
    fn both_forms_name_what_may_be_answered() {
        let (labels, vocabulary) = (labels(), vocabulary());
        let (about, evaluator) = (options::About::default(), crate::advice::evaluate::Evaluator::default());
        let options = options::options(&state(), &vocabulary, &about, &evaluator, Key::new(1));
        let refused =
            Refused { lever: Some("posture"), field: Some("compute"), reason: RefusalReason::UnknownId };
        let of = |form| prompt(form, "T1: fine\n", &options, &vocabulary, &[refused; 9], &labels);
        let shown = of(Form::Options);
        for (index, option) in options.actions().iter().enumerate() {
            let line = format!("{}: {}\n", option_label(index), option.describe(&labels));
            assert!(shown.user.contains(&line), "{}", shown.user);
        }
        let told =
            "Your last answer was refused in part: posture.compute: a field named what was not offered.";
        assert_eq!(shown.user.matches(told).count(), REFUSALS_TOLD);
        let written = of(Form::Actions);
        assert!(LEVERS.iter().all(|lever| written.user.contains(lever.name)), "{}", written.user);
        for text in [&shown, &written] {
            assert!(text.system.len() + text.user.len() <= PROMPT_BYTES_MAX, "{}", text.user.len());
        }
    }
}
