//! Who looks at a simulation after each of its events.

use super::simulation::Simulation;
use crate::stop::Stop;

/// Judges the state; the text of an error says what is wrong with it.
pub trait Watch {
    fn after(&mut self, simulation: &Simulation<'_>) -> Result<(), String>;
}

/// Ends a simulation when somebody asks for that.
pub struct UntilStopped<'a>(pub &'a Stop);

impl Watch for UntilStopped<'_> {
    fn after(&mut self, _: &Simulation<'_>) -> Result<(), String> {
        if self.0.is_raised() { Err("stopped on request".to_owned()) } else { Ok(()) }
    }
}
