//! Prefetching without hurry: what is not needed for a while comes at the rate at which it will be needed, so that
//! links stay free for demand and for gradients.
//!
//! For every minibatch of the window, soonest first: if all that is missing up to it could not come in time at a part of
//! the link's rate, it and those before it are urgent and take whatever the permits allow. The others share a rate that
//! brings each of them in time, with some to spare; and they come when a trainer begins to compute, since it exchanges
//! gradients at the end of its step, which every fetch at that time would make longer.

/// Part of a link's rate that prefetching without hurry may need at most.
const UNHURRIED: f64 = 0.6;
/// The rate over what would bring everything just in time.
const TO_SPARE: f64 = 1.5;

/// What a minibatch lacks, and when it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub bytes: f64,
    /// From now. 0: at once.
    pub in_ns: f64,
}

/// A bucket of bytes that fills at the unhurried rate, and is given out when a trainer begins to compute.
#[derive(Clone, Debug, Default)]
pub(super) struct Ease {
    saved: f64,
    /// Given out and not spent.
    given: f64,
    bytes_per_ns: f64,
    as_of_ns: u64,
    begins: bool,
}

impl Ease {
    /// A trainer has its minibatch and begins to compute.
    pub fn step_begins(&mut self) {
        self.begins = true;
    }

    /// A new plan begins. `needs` soonest first; `capacity` in bytes a nanosecond; `quantum`: bytes that make a good
    /// transfer; `step_ns`: for how long what was not spent is kept. Returns how many of the first needs are urgent.
    pub fn renew(&mut self, needs: &[Need], capacity: f64, quantum: f64, step_ns: f64, now_ns: u64) -> usize {
        let passed_ns = now_ns.saturating_sub(self.as_of_ns) as f64;
        self.as_of_ns = now_ns;
        self.saved += passed_ns * self.bytes_per_ns;
        let (mut up_to, mut urgent) = (0.0, 0);
        for (at, need) in needs.iter().enumerate() {
            up_to += need.bytes;
            if up_to > 0.0 && up_to >= UNHURRIED * capacity * need.in_ns {
                urgent = at + 1;
            }
        }
        let (mut up_to, mut rate) = (0.0, 0.0_f64);
        for (at, need) in needs.iter().enumerate() {
            up_to += need.bytes;
            if at >= urgent && need.in_ns > 0.0 {
                rate = rate.max(up_to / need.in_ns);
            }
        }
        self.bytes_per_ns = TO_SPARE * rate;
        let most = (self.bytes_per_ns * step_ns).max(quantum);
        self.saved = self.saved.min(most);
        // Small change would make small transfers.
        if std::mem::take(&mut self.begins) && self.given.max(0.0) + self.saved >= quantum {
            self.given += std::mem::take(&mut self.saved);
        }
        self.given = self.given.min(most);
        urgent
    }

    /// Takes bytes for an unhurried fetch.
    pub fn take(&mut self, bytes: u64) -> bool {
        let taken = self.given > 0.0;
        if taken {
            self.given -= bytes as f64;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e6;

    fn needs(bytes: f64, step_ms: f64, minibatches: u32) -> Vec<Need> {
        (0..minibatches).map(|ahead| Need { bytes, in_ns: f64::from(ahead) * step_ms * MS }).collect()
    }

    /// Bytes that may be taken in one plan, block by block.
    fn spend(ease: &mut Ease) -> u64 {
        let mut taken = 0;
        while ease.take(1000) {
            taken += 1000;
        }
        taken
    }

    #[test]
    fn what_is_needed_soon_is_urgent_and_the_rest_comes_in_time() {
        let mut ease = Ease::default();
        // 1 byte a nanosecond; 10 ms of bytes are needed every 20 ms, of which 6 in 10 may be used: enough.
        let window = needs(10.0 * MS, 20.0, 8);
        // Up to the sixth 60 ms of bytes lack, and 60 could come.
        ease.step_begins();
        assert_eq!(ease.renew(&window, 1.0, 64e3, 20.0 * MS, 0), 6);
        assert_eq!(spend(&mut ease), 0, "nothing has accrued yet");
        // Up to the seventh 70 ms of bytes are needed in 120 ms; half as much again: 0.875 a nanosecond.
        ease.step_begins();
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 1_000_000);
        let spent = spend(&mut ease);
        assert!((875_000..=876_000).contains(&spent), "{spent}");
        // What was not spent is kept for one step.
        ease.step_begins();
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 500_000_000);
        let spent = spend(&mut ease) as f64;
        assert!((spent / (20.0 * MS * 0.875) - 1.0).abs() < 0.01, "{spent}");
    }

    #[test]
    fn bytes_of_a_step_come_when_one_begins() {
        let mut ease = Ease::default();
        let window = needs(10.0 * MS, 20.0, 8);
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 0);
        // The step goes on: gradients may be on their way.
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 20_000_000);
        assert_eq!(spend(&mut ease), 0);
        ease.step_begins();
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 20_000_000);
        assert!(ease.take(10_000_000));
        // What permits did not let through at once goes on, and no more than that.
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 30_000_000);
        let spent = spend(&mut ease);
        assert!((7_500_000..=7_501_000).contains(&spent), "{spent}");
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 39_000_000);
        assert_eq!(spend(&mut ease), 0);
    }

    #[test]
    fn a_link_that_cannot_keep_up_is_never_eased() {
        let mut ease = Ease::default();
        let window = needs(15.0 * MS, 20.0, 8);
        assert_eq!(ease.renew(&window, 1.0, 64e3, 20.0 * MS, 0), 8);
        // Nor is one whose trainers' steps are unknown.
        assert_eq!(ease.renew(&needs(1.0, 0.0, 8), 1.0, 64e3, 0.0, 0), 8);
        assert_eq!(ease.renew(&[], 1.0, 64e3, 0.0, 0), 0);
    }

    #[test]
    fn nothing_missing_is_not_urgent_and_small_change_is_saved_up() {
        let mut ease = Ease::default();
        assert_eq!(ease.renew(&needs(0.0, 20.0, 8), 1.0, 64e3, 20.0 * MS, 0), 0);
        let window = [Need { bytes: 1e6, in_ns: 100.0 * MS }];
        assert_eq!(ease.renew(&window, 1.0, 64e3, 20.0 * MS, 0), 0);
        // 0.015 bytes a nanosecond: after 1 ms too little for a transfer, after 5 ms enough.
        ease.step_begins();
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 1_000_000);
        assert_eq!(spend(&mut ease), 0);
        ease.step_begins();
        ease.renew(&window, 1.0, 64e3, 20.0 * MS, 5_000_000);
        assert_eq!(spend(&mut ease), 75_000);
    }
}
