//! Who decides when MassiveGNN's buffer is replaced: the question that the Rudder papers put to a language model, and
//! their controls for it. The model's own answers would be one more implementation of [`Controller`].

use rudder_graph::random::Key;
use rudder_topology::ControllerSpec;

/// What a controller is told with every minibatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// Counted from 1.
    pub minibatch: u64,
    /// Halo blocks of the minibatch that were in the buffer, and that were not.
    pub hits: u32,
    pub misses: u32,
    /// Minibatches since the last replacement, or since the start; at least 1.
    pub since_replacement: u32,
}

pub(super) trait Controller: Send {
    /// Whether to replace now.
    fn replaces(&mut self, measured: &Measured) -> bool;
}

impl Controller for ControllerSpec {
    fn replaces(&mut self, measured: &Measured) -> bool {
        match *self {
            ControllerSpec::Always => true,
            ControllerSpec::Never => false,
            ControllerSpec::Random { probability } => {
                Key::new(SEED).below(measured.minibatch, u64::from(RESOLUTION))
                    < u64::from(probability.millionths())
            }
            ControllerSpec::Every { minibatches } => {
                measured.minibatch.is_multiple_of(u64::from(minibatches))
            }
        }
    }
}

/// Every run draws alike.
const SEED: u64 = 0x7275_6464_6572;
const RESOLUTION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_topology::Share;

    #[test]
    fn a_random_controller_replaces_at_its_share_of_the_minibatches() {
        let decisions = |mut controller: ControllerSpec| -> Vec<bool> {
            let measured =
                |minibatch| Measured { minibatch, hits: 0, misses: 0, since_replacement: minibatch as u32 };
            (1..=10_000).map(|minibatch| controller.replaces(&measured(minibatch))).collect()
        };
        let random = ControllerSpec::Random { probability: Share::from_millionths(300_000) };
        let drawn = decisions(random);
        // 3,000 expected, standard deviation 46: six of them.
        let replaced = drawn.iter().filter(|&&replaces| replaces).count();
        assert!((2_725..3_275).contains(&replaced), "{replaced}");
        assert_eq!(drawn, decisions(random));
        let every = decisions(ControllerSpec::Every { minibatches: 3 });
        assert_eq!(every[..6], [false, false, true, false, false, true]);
    }
}
