//! What goes wrong, by chance.

use super::world::{Ending, World};
use rudder_graph::{BlockRows, Class};
use rudder_policy::step::{Admission, Fetch, Origin, Proposal, Step};
use rudder_topology::{BlockId, Generation, NodeId};

/// One event of the schedule: a fault now and then, else whatever may happen.
pub(super) fn any_event(world: &mut World) {
    world.now_ns += world.random.between(1_000, 1_000_000);
    if world.random.one_in(6) {
        fault(world);
    } else {
        super::progress::fair_event(world);
    }
}

fn fault(world: &mut World) {
    match world.random.below(12) {
        0 => with_node(world, World::node_down),
        1 | 2 => with_node(world, World::node_up),
        3 => end_badly(world, Ending::Lost),
        4 => end_badly(world, Ending::Corrupt),
        5 => end_badly(world, Ending::Refused),
        6 => {
            let at = world.random.below(world.trainers.len() as u64) as usize;
            // Behind a barrier the whole job would start again.
            if !world.options.barrier {
                world.restart_trainer(at);
            }
        }
        7 => world.answer_late(),
        8 => world.answer_by_stranger(),
        9 => world.recover(),
        10 => {
            let tenths = world.random.between(1, 10);
            world.resize(tenths);
        }
        _ => {
            world.now_ns += world.options.transfer_timeout_ns;
            world.tick();
        }
    }
}

fn with_node(world: &mut World, act: impl Fn(&mut World, usize)) {
    let at = world.random.below(world.nodes.len() as u64) as usize;
    act(world, at);
}

fn end_badly(world: &mut World, ending: Ending) {
    let answerable = world.answerable();
    if !answerable.is_empty() {
        let at = *world.random.pick(&answerable);
        world.answer(at, ending);
    }
}

/// Adds steps that no sound planner would propose, alone and in the middle of what it does propose: the validator must
/// not trust anyone. Returns them.
pub(super) fn forge_steps(world: &mut World, proposal: &mut Proposal) -> Vec<Step> {
    if !world.options.faults || !world.random.one_in(5) {
        return Vec::new();
    }
    let forged: Vec<_> = (0..world.random.between(1, 3)).map(|_| forged_step(world)).collect();
    for step in &forged {
        let at = world.random.below(proposal.steps.len() as u64 + 1) as usize;
        proposal.steps.insert(at, step.clone());
    }
    slip_in(world, proposal).into_iter().chain(forged).collect()
}

/// A forged admission among those of a fetch that was planned: the others must go as if it were not there.
fn slip_in(world: &mut World, proposal: &mut Proposal) -> Option<Step> {
    let Step::Fetch(Fetch { admissions, .. }) = forged_step(world) else { return None };
    let fetches = proposal.steps.iter_mut().filter_map(|step| match step {
        Step::Fetch(fetch) => Some(fetch),
        _ => None,
    });
    let fetch = fetches.last()?;
    let at = world.random.below(fetch.admissions.len() as u64 + 1) as usize;
    fetch.admissions.insert(at, admissions[0]);
    Some(Step::Fetch(Fetch { admissions, ..fetch.clone() }))
}

fn forged_step(world: &mut World) -> Step {
    let blocks = u64::from(world.dataset.book.blocks());
    let random = &mut world.random;
    let block = BlockId(random.below(blocks + 1) as u32);
    if random.one_in(2) {
        return Step::Evict { blocks: vec![block], origin: Origin::Directive };
    }
    let mask = match random.below(3) {
        0 => 1,
        1 => random.draw(),
        _ => 0,
    };
    let victim = BlockId(random.below(blocks) as u32);
    Step::Fetch(Fetch {
        node: NodeId(random.below(u64::from(world.options.nodes) + 1) as u16),
        staged: random.one_in(4),
        generation: Generation(random.below(3)),
        class: if random.one_in(2) { Class::Demand } else { Class::Prefetch },
        origin: Origin::Directive,
        admissions: vec![Admission {
            rows: BlockRows { block, mask },
            evict: random.one_in(2).then_some(victim),
        }],
    })
}
