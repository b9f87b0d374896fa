//! What is run, in which order.

use crate::arm::Arm;
use crate::compile::Scenario;
use rudder_topology::Advisor;

/// One run of those that are compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play<'a> {
    /// Without one, it is the bound.
    pub arm: Option<Arm>,
    /// Whom the nodes' files name; `None`: nobody, so that the rules advise.
    pub advisor: Option<&'a Advisor>,
    /// Whether it is played to see what the advisor is worth; otherwise, to compare arms.
    pub is_advised: bool,
    pub repeat: u32,
}

/// What is run in a repeat, in order: the bound, every arm, and where advisors are named `rudder` under each of them.
/// Then all others are advised by nobody.
pub(super) fn plays<'a>(scenario: &'a Scenario, never: &'a Advisor, repeat: u32) -> Vec<Play<'a>> {
    let baseline = (!scenario.advisors.is_empty()).then_some(never);
    let unadvised = |arm| Play { arm, advisor: baseline, is_advised: false, repeat };
    let mut plays = vec![unadvised(None)];
    plays.extend(scenario.arms.iter().map(|&arm| unadvised(Some(arm))));
    let advised = |advisor| Play { arm: Some(Arm::Rudder), advisor: Some(advisor), is_advised: true, repeat };
    // Where it is among the arms it was played without advice already.
    let missing = baseline.filter(|_| !scenario.arms.contains(&Arm::Rudder));
    plays.extend(missing.into_iter().chain(&scenario.advisors).map(advised));
    plays
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;
    use rudder_topology::AdvisorBackend;
    use std::path::Path;

    /// Arm, advisor and whether it is played for that advisor.
    fn played(arms: &str, advisors: &str) -> Vec<(&'static str, &'static str, bool)> {
        let text = format!(
            "arms = {arms}\n[dataset]\nimport = \"x\"\n[cluster]\ncompute_nodes = 1\nstorage_nodes = 1\nbandwidth = \"50Mbit/s\"\n[trainer]\ncompute = \"1ms\"\nminibatches = 2\n{advisors}\n"
        );
        let scenario = compile(&text, Path::new("x.toml")).unwrap();
        let never = Advisor { backend: AdvisorBackend::Never, ..Advisor::default() };
        let name = |advisor: Option<&Advisor>| advisor.map_or("-", |advisor| advisor.backend.name());
        let plays = plays(&scenario, &never, 0);
        plays.iter().map(|p| (p.arm.map_or("bound", Arm::name), name(p.advisor), p.is_advised)).collect()
    }

    #[test]
    fn rudder_is_played_under_each_advisor_and_everything_else_under_none() {
        assert_eq!(
            played("[\"lru\", \"rudder\"]", ""),
            [("bound", "-", false), ("lru", "-", false), ("rudder", "-", false)]
        );
        let advisors = "[advisor]\nbackends = [\"never\", \"rules\", \"first\"]";
        let advised = [("rudder", "rules", true), ("rudder", "first", true)];
        let (bound, lru) = (("bound", "never", false), ("lru", "never", false));
        let expected = [[bound, lru].as_slice(), &[("rudder", "never", false)], &advised].concat();
        assert_eq!(played("[\"lru\", \"rudder\"]", advisors), expected);
        // Where `rudder` is none of the arms it is played without advice all the same.
        let expected = [[bound, lru].as_slice(), &[("rudder", "never", true)], &advised].concat();
        assert_eq!(played("[\"lru\"]", advisors), expected);
    }
}
