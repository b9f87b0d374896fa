//! The observer: measures the node and sends a compact report to the collectors (on the scheduler node).

pub mod gpu;
pub mod process;

use crate::clock::NodeClock;
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::worker::Work;
use process::ProcessMeter;
use ractor::ActorRef;
use rudder_messages::{CollectorMessage, ObserverMessage, REPORT_PERIOD, Report, names};
use rudder_topology::{Generation, Nanos, NodeName};
use std::sync::Arc;

/// What an observer works with, over all its lives.
pub struct Observation {
    pub node: NodeName,
    pub generation: Generation,
    pub clock: NodeClock,
    pub counters: Counters,
}

/// The actor's work.
pub struct Observer {
    observation: Arc<Observation>,
    meter: ProcessMeter,
}

impl Observer {
    #[must_use]
    pub fn new(observation: Arc<Observation>) -> Self {
        Observer { observation, meter: ProcessMeter::default() }
    }

    fn report(&mut self) -> Report {
        let observation = &self.observation;
        let at = observation.clock.now();
        Report {
            node: observation.node.clone(),
            generation: observation.generation,
            at,
            process: self.meter.measure(at),
            gpus: observation.counters.gpus.as_ref().map_or_else(Vec::new, |gpus| gpus.measure()),
            compute: observation.counters.compute(),
            storage: observation.counters.storage(),
            sample: observation.counters.sample(),
        }
    }
}

impl Work for Observer {
    type Item = ObserverMessage;

    async fn handle(&mut self, message: ObserverMessage) {
        match message {
            ObserverMessage::Observe => {
                let report = self.report();
                for collector in ractor::pg::get_members(&names::collector_group()) {
                    let collector = ActorRef::<CollectorMessage>::from(collector);
                    // A collector that has just gone is replaced by the time of the next report.
                    let _ = collector.send_message(CollectorMessage::Report(Box::new(report.clone())));
                }
            }
            ObserverMessage::Report(reply) => {
                // Whoever asked may have gone; then nobody needs the answer.
                let _ = reply.send(self.report());
            }
            ObserverMessage::Fault => panic!("a fault was asked for"),
        }
    }
}

/// Asks for a report every [`REPORT_PERIOD`], until aborted.
pub async fn pulse(clock: NodeClock, observer: Mailbox<ObserverMessage>) {
    let mut at = clock.now();
    loop {
        at = Nanos(at.0 + REPORT_PERIOD.0);
        tokio::time::sleep_until(clock.instant(at)).await;
        // One that waits already says as much as two.
        if observer.waiting() == 0 {
            observer.send(ObserverMessage::Observe);
        }
    }
}
