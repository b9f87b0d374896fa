//! What the slow loop sees of the cluster, and what it does to it.

use super::{Event, Simulation};
use crate::sim::spec::SimError;
use crate::sim::steer::Steering;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::enact::enact;
use rudder_policy::advice::state::DatasetIndex;
use rudder_policy::engine::Engine;
use rudder_policy::step::Reaction;
use rudder_topology::NodeId;

/// A simulated cluster serves one dataset.
const DATASET: DatasetIndex = DatasetIndex(0);

impl Simulation<'_> {
    pub(super) fn observe(&mut self) -> Result<(), SimError> {
        let samples = self.engines().map(|(node, engine)| (node, engine.sample(DATASET))).collect();
        let now_ns = self.now_ns;
        // Where nothing else will happen the run is stuck, and looking at it for ever would hide that.
        let goes_on = self.agenda.next_ns().is_some() || self.network.next_ns(now_ns).is_some();
        let Some(steer) = self.steer.as_mut().filter(|_| goes_on) else { return Ok(()) };
        self.agenda.add(now_ns + steer.period_ns().max(1), Event::Observe);
        let orders = steer.observe(now_ns, samples);
        self.carry_out(orders)
    }

    pub(super) fn answer(&mut self) -> Result<(), SimError> {
        let now_ns = self.now_ns;
        let orders = self.steer.as_mut().map(|steer| steer.answer(now_ns)).unwrap_or_default();
        self.carry_out(orders)
    }

    fn carry_out(&mut self, orders: Vec<Steering>) -> Result<(), SimError> {
        for order in orders {
            match order {
                Steering::AnswerAfter(ns) => self.agenda.add(self.now_ns + ns, Event::Steer),
                Steering::Revert => self.all(|engine, _, _| engine.revert_parameters())?,
                Steering::Enact(directive) => {
                    self.all(|engine, node, now| put(engine, node, &directive, now))?
                }
            }
        }
        Ok(())
    }

    /// The same on every compute node.
    fn all(&mut self, mut what: impl FnMut(&mut Engine, NodeId, u64) -> Reaction) -> Result<(), SimError> {
        let nodes: Vec<NodeId> = self.engines().map(|(node, _)| node).collect();
        nodes.into_iter().try_for_each(|node| self.stage(node, |engine, now_ns| what(engine, node, now_ns)))
    }
}

/// As the director of a node does.
fn put(engine: &mut Engine, node: NodeId, directive: &Directive, now_ns: u64) -> Reaction {
    let parameters = (engine.lasting_parameters(), engine.parameters());
    let next = enact(directive, (node, DATASET), engine.view().book, parameters, now_ns);
    // Parameters that the engine refuses change nothing.
    next.and_then(|next| engine.set_parameters(next).ok()).unwrap_or_default()
}
