//! The circuit breaker: after failures in a row a back end is left alone, then tried with one probe at a time.

use serde::{Deserialize, Serialize};

/// When it opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open at first; doubles with each probe that fails.
    pub open_ns: u64,
    pub open_ns_max: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        BreakerConfig { failures: 3, open_ns: 10_000_000_000, open_ns_max: 300_000_000_000 }
    }
}

/// The breaker's state, as shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// One call is on its way to see whether the others may pass.
    HalfOpen,
}

/// Whether a call may be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Call,
    Refused { until_ns: u64 },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: BreakerState,
    failures: u32,
    open_ns: u64,
    until_ns: u64,
}

impl Breaker {
    #[must_use]
    pub fn new(config: BreakerConfig) -> Self {
        let open_ns = config.open_ns;
        Breaker { config, state: BreakerState::Closed, failures: 0, open_ns, until_ns: 0 }
    }

    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Asks for a call. Whoever gets one must report its end; a probe that is never heard of again is forgotten after
    /// as long as the breaker was open.
    pub fn ask(&mut self, now_ns: u64) -> Permission {
        match self.state {
            BreakerState::Closed => Permission::Call,
            BreakerState::Open | BreakerState::HalfOpen if now_ns < self.until_ns => {
                Permission::Refused { until_ns: self.until_ns }
            }
            BreakerState::Open | BreakerState::HalfOpen => {
                self.state = BreakerState::HalfOpen;
                self.until_ns = now_ns.saturating_add(self.open_ns);
                Permission::Call
            }
        }
    }

    pub fn succeeded(&mut self) {
        *self = Breaker::new(self.config);
    }

    pub fn failed(&mut self, now_ns: u64) {
        self.failures = self.failures.saturating_add(1);
        match self.state {
            BreakerState::Closed if self.failures < self.config.failures => {}
            BreakerState::Closed => self.open(now_ns),
            BreakerState::HalfOpen => {
                self.open_ns = self.open_ns.saturating_mul(2).min(self.config.open_ns_max);
                self.open(now_ns);
            }
            // A call from before it opened.
            BreakerState::Open => {}
        }
    }

    fn open(&mut self, now_ns: u64) {
        self.state = BreakerState::Open;
        self.until_ns = now_ns.saturating_add(self.open_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: BreakerConfig = BreakerConfig { failures: 3, open_ns: 100, open_ns_max: 300 };

    #[test]
    fn it_opens_probes_and_closes() {
        let mut breaker = Breaker::new(CONFIG);
        for now in 0..3 {
            assert_eq!(breaker.ask(now), Permission::Call);
            breaker.failed(now);
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        assert_eq!(breaker.ask(101), Permission::Refused { until_ns: 102 });
        assert_eq!((breaker.ask(102), breaker.state()), (Permission::Call, BreakerState::HalfOpen));
        assert!(matches!(breaker.ask(103), Permission::Refused { .. }), "one probe at a time");
        breaker.failed(110);
        assert_eq!(breaker.ask(309), Permission::Refused { until_ns: 310 }, "twice as long");
        assert_eq!(breaker.ask(310), Permission::Call);
        breaker.succeeded();
        assert_eq!((breaker.state(), breaker.ask(311)), (BreakerState::Closed, Permission::Call));
        breaker.failed(312);
        breaker.failed(313);
        assert_eq!(breaker.state(), BreakerState::Closed, "it counts anew");
    }

    #[test]
    fn a_lost_probe_does_not_hold_it_open_for_ever() {
        let mut breaker = Breaker::new(CONFIG);
        (0..3).for_each(|now| breaker.failed(now));
        assert_eq!(breaker.ask(200), Permission::Call);
        assert_eq!(breaker.ask(300), Permission::Call);
    }

    proptest! {
        /// Whatever happens, a call is allowed again within the longest pause.
        #[test]
        fn it_never_refuses_for_longer_than_its_maximum(outcomes in prop::collection::vec(any::<(bool, u8)>(), 1..200)) {
            let mut breaker = Breaker::new(CONFIG);
            let mut now = 0;
            for (fails, passed) in outcomes {
                now += u64::from(passed);
                match breaker.ask(now) {
                    Permission::Call if fails => breaker.failed(now),
                    Permission::Call => breaker.succeeded(),
                    Permission::Refused { until_ns } => prop_assert!(until_ns > now && until_ns - now <= 300),
                }
            }
        }
    }
}
