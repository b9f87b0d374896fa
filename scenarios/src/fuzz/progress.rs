//! What happens when nothing goes wrong: trainers go on, transfers arrive, timers fire.

use super::trainer::Trainer;
use super::world::{Ending, World};

#[derive(Clone, Copy)]
enum Choice {
    Announce(usize),
    Want(usize),
    Release(usize),
    Arrive(usize),
}

/// One thing that can happen now, chosen by chance; if nothing can, time passes to the next timer. `false`: no timer
/// either, so nothing will ever happen again.
pub(super) fn fair_event(world: &mut World) -> bool {
    let choices = choices(world);
    if choices.is_empty() {
        let Some(wake) = world.next_wake() else { return false };
        world.now_ns = world.now_ns.max(wake);
        world.tick();
        return true;
    }
    match *world.random.pick(&choices) {
        Choice::Announce(at) => world.announce(at),
        Choice::Want(at) => world.want(at),
        Choice::Release(at) => world.release(at),
        Choice::Arrive(at) => world.answer(at, Ending::Arrived),
    }
    true
}

fn choices(world: &World) -> Vec<Choice> {
    let mut choices: Vec<_> = world.answerable().into_iter().map(Choice::Arrive).collect();
    let step = world.trainers.iter().filter(|trainer| !trainer.is_done()).map(Trainer::steps).min();
    // An all-reduce ends a step only when every trainer of that step computes.
    let in_step = |trainer: &&Trainer| !trainer.is_done() && Some(trainer.steps()) == step;
    let together = world.trainers.iter().filter(in_step).all(Trainer::computes);
    for (at, trainer) in world.trainers.iter().enumerate() {
        if trainer.may_announce() {
            choices.push(Choice::Announce(at));
        }
        if trainer.may_want() {
            choices.push(Choice::Want(at));
        }
        let may_end = !world.options.barrier || (together && in_step(&trainer));
        if trainer.must_give_back() || (trainer.computes() && may_end) {
            choices.push(Choice::Release(at));
        }
    }
    choices
}
