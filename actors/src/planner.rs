//! The planner: turns events into proposals, one at a time; what happens meanwhile is planned together.

use crate::dataset::{Dataset, Planning};
use crate::worker::Work;
use rudder_messages::{PlannerMessage, ValidatorMessage};
use std::sync::{Arc, MutexGuard, PoisonError};

/// After so many proposals in a row of which nothing was accepted, the planner waits for something to happen.
const FRUITLESS_MAX: u32 = 2;

/// The actor's work.
pub struct Planner {
    dataset: Arc<Dataset>,
}

impl Planner {
    #[must_use]
    pub fn new(dataset: Arc<Dataset>) -> Self {
        Planner { dataset }
    }

    fn planning(&self) -> MutexGuard<'_, Planning> {
        self.dataset.planning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) {
        let mut planning = self.planning();
        if planning.outstanding || planning.fruitless >= FRUITLESS_MAX {
            return;
        }
        let events = std::mem::take(&mut planning.events);
        drop(planning);
        let now = self.dataset.now_ns();
        let proposal = self.dataset.engine.with(|engine| engine.plan(&events, now));
        self.planning().outstanding = true;
        self.dataset.validator.send(ValidatorMessage::Judge(proposal));
    }
}

impl Work for Planner {
    type Item = PlannerMessage;

    /// A former life may have taken events with it: orders are made anew, and a plan with them.
    async fn begin(&mut self) {
        self.dataset.engine.with(|engine| engine.recover());
        self.planning().fruitless = 0;
        self.plan();
    }

    async fn handle(&mut self, message: PlannerMessage) {
        let mut planning = self.planning();
        match message {
            PlannerMessage::Events(mut events) => {
                planning.events.append(&mut events);
                planning.fruitless = 0;
            }
            PlannerMessage::Judged { accepted, mut events } => {
                planning.events.append(&mut events);
                planning.outstanding = false;
                planning.fruitless = match (accepted, planning.events.is_empty()) {
                    (0, true) => FRUITLESS_MAX,
                    (0, false) => planning.fruitless + 1,
                    _ => 0,
                };
            }
            PlannerMessage::Recover => {
                drop(planning);
                self.dataset.engine.with(|engine| engine.recover());
                self.planning().fruitless = 0;
            }
            PlannerMessage::Fault => panic!("a fault was asked for"),
        }
    }

    async fn settle(&mut self) {
        self.plan();
    }
}
