//! The validator: judges proposals on the facts, applies what it accepts, hands out the commands.

use crate::dataset::Dataset;
use crate::worker::Work;
use rudder_messages::{PlannerMessage, ValidatorMessage};
use rudder_policy::step::{Event, Proposal};
use std::sync::Arc;

/// The actor's work.
pub struct Validator {
    dataset: Arc<Dataset>,
}

/// Tells the planner in any case that its proposal is out no more: also when judging it panics.
struct Judging<'a> {
    dataset: &'a Dataset,
    accepted: usize,
    events: Vec<Event>,
}

impl Drop for Judging<'_> {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.events);
        if std::thread::panicking() {
            self.dataset.planner.send(PlannerMessage::Recover);
        }
        self.dataset.planner.send(PlannerMessage::Judged { accepted: self.accepted, events });
    }
}

impl Validator {
    #[must_use]
    pub fn new(dataset: Arc<Dataset>) -> Self {
        Validator { dataset }
    }

    fn judge(&self, proposal: Proposal) {
        let mut judging = Judging { dataset: &self.dataset, accepted: 0, events: Vec::new() };
        let (accepted, events) = self.dataset.engine.with(|engine| {
            let verdicts = engine.validate(proposal, self.dataset.now_ns());
            self.dataset.dispatch(verdicts.commands);
            (verdicts.accepted, verdicts.events)
        });
        for event in &events {
            if let Event::Refused(step, refusal) = event {
                tracing::trace!(dataset = %self.dataset.name, ?step, %refusal, "a step was refused");
            }
        }
        judging.accepted = accepted;
        judging.events = events;
    }
}

impl Work for Validator {
    type Item = ValidatorMessage;

    async fn handle(&mut self, message: ValidatorMessage) {
        match message {
            ValidatorMessage::Judge(proposal) => self.judge(proposal),
            ValidatorMessage::Fault => panic!("a fault was asked for"),
        }
    }
}
