//! Who looks at a simulation after each of its events.

use super::simulation::Simulation;

/// Judges the state; the text of an error says what is wrong with it.
pub trait Watch {
    fn after(&mut self, simulation: &Simulation<'_>) -> Result<(), String>;
}
