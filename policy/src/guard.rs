//! The net-benefit guard: prefetching that makes trainers wait longer than demand caching would is switched off, and
//! tried again later.
//!
//! What demand caching would have cost is estimated (see [`crate::shadow`] for its misses). While prefetching is off
//! the wait is measured under demand caching itself, which corrects the estimate.

/// Minibatches between two judgements.
const WINDOW: u32 = 32;
/// Prefetching may cost so much more than demand before it loses: the noise of the measurement.
const MARGIN: f64 = 1.1;
/// Waits below this share of the time are no reason for anything.
const WAIT_SHARE_LEAST: f64 = 0.02;
/// Judgements in a row that switch prefetching off.
const STRIKES: u32 = 2;
/// Judgements for which it stays off: at first, and at most.
const OFF_FIRST: u32 = 2;
const OFF_MAX: u32 = 64;
/// Weight of the newest window in the estimate's correction.
const CORRECTION_WEIGHT: f64 = 0.5;

/// A minibatch that a trainer got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// From asking to getting.
    pub wait_ns: u64,
    /// What asking would have cost under demand caching, estimated.
    pub demand_wait_ns: u64,
    /// Since the trainer's minibatch before.
    pub step_ns: u64,
}

/// What the guard says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetching {
    On,
    Off,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Guard {
    state: Prefetching,
    window: Window,
    /// Measured over estimated wait of demand caching.
    correction: f64,
    strikes: u32,
    off_left: u32,
    off_next: u32,
    switches: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    minibatches: u32,
    wait_ns: f64,
    demand_wait_ns: f64,
    step_ns: f64,
}

impl Default for Guard {
    fn default() -> Self {
        Guard {
            state: Prefetching::On,
            window: Window::default(),
            correction: 1.0,
            strikes: 0,
            off_left: 0,
            off_next: OFF_FIRST,
            switches: 0,
        }
    }
}

impl Guard {
    #[must_use]
    pub fn state(&self) -> Prefetching {
        self.state
    }

    /// How often prefetching was switched off.
    #[must_use]
    pub fn switches(&self) -> u32 {
        self.switches
    }

    /// Takes in a minibatch; says whether to prefetch from here on.
    pub fn served(&mut self, served: Served) -> Prefetching {
        let window = &mut self.window;
        window.minibatches += 1;
        window.wait_ns += served.wait_ns as f64;
        window.demand_wait_ns += served.demand_wait_ns as f64;
        window.step_ns += served.step_ns as f64;
        if window.minibatches >= WINDOW {
            let window = std::mem::take(window);
            match self.state {
                Prefetching::On => self.judge(&window),
                Prefetching::Off => self.learn(&window),
            }
        }
        self.state
    }

    fn judge(&mut self, window: &Window) {
        let matters = window.wait_ns > WAIT_SHARE_LEAST * window.step_ns;
        if !matters || window.wait_ns <= MARGIN * self.correction * window.demand_wait_ns {
            self.strikes = 0;
            self.off_next = OFF_FIRST;
            return;
        }
        self.strikes += 1;
        if self.strikes >= STRIKES {
            self.state = Prefetching::Off;
            self.switches += 1;
            self.off_left = self.off_next;
            self.off_next = (self.off_next * 2).min(OFF_MAX);
        }
    }

    fn learn(&mut self, window: &Window) {
        if window.demand_wait_ns > 0.0 {
            let found = (window.wait_ns / window.demand_wait_ns).clamp(0.1, 10.0);
            self.correction += CORRECTION_WEIGHT * (found - self.correction);
        }
        self.off_left -= 1;
        if self.off_left == 0 {
            self.state = Prefetching::On;
            // A trial: one bad judgement ends it.
            self.strikes = STRIKES - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays windows of equal minibatches; returns the state after each.
    fn play(
        guard: &mut Guard,
        windows: u32,
        wait: impl Fn(Prefetching) -> u64,
        demand: u64,
    ) -> Vec<Prefetching> {
        (0..windows)
            .map(|_| {
                let state = guard.state();
                for _ in 0..WINDOW {
                    guard.served(Served { wait_ns: wait(state), demand_wait_ns: demand, step_ns: 1000 });
                }
                guard.state()
            })
            .collect()
    }

    #[test]
    fn what_helps_stays_on() {
        let mut guard = Guard::default();
        assert!(play(&mut guard, 50, |_| 100, 300).iter().all(|&state| state == Prefetching::On));
        // Equal but for noise.
        assert!(play(&mut guard, 50, |_| 320, 300).iter().all(|&state| state == Prefetching::On));
        // It loses, but nobody waits.
        assert!(play(&mut guard, 50, |_| 10, 1).iter().all(|&state| state == Prefetching::On));
        assert_eq!(guard.switches(), 0);
    }

    #[test]
    fn what_loses_is_off_nearly_always() {
        let mut guard = Guard::default();
        let wait = |state| if state == Prefetching::On { 500 } else { 300 };
        let states = play(&mut guard, 400, wait, 300);
        assert_eq!(states[..2], [Prefetching::On, Prefetching::Off]);
        let on = states.iter().filter(|&&state| state == Prefetching::On).count();
        assert!(on < 20, "{on} of 400");
        // It is tried again and again, and stays on once it helps.
        assert!(guard.switches() > 3);
        let states = play(&mut guard, 100, |state| if state == Prefetching::On { 100 } else { 300 }, 300);
        assert!(states[70..].iter().all(|&state| state == Prefetching::On));
    }

    #[test]
    fn a_wrong_estimate_is_corrected_while_it_is_off() {
        // Demand caching really waits 600; the estimate says 300, so prefetching with 500 looks bad at first.
        let mut guard = Guard::default();
        let wait = |state| if state == Prefetching::On { 500 } else { 600 };
        let states = play(&mut guard, 60, wait, 300);
        assert_eq!(states[1], Prefetching::Off);
        assert!(states[20..].iter().all(|&state| state == Prefetching::On), "{states:?}");
    }
}
