//! Changing clusters from seeds, simulated once for each advisor: what advice is worth.
//!
//! Each scenario is small, and something in it changes midway ([`draw`] states the distribution). The slow loop is the
//! product's own: samples, triggers, reports, consults, trials. Beside the advisors, every single directive is tried
//! from the moment of the first consult to the end ([`exhaustive`]), so that it is known whether any could have helped,
//! and whether the evaluator expected what came.
//!
//! Stall is what all trainers' steps took beyond what they take where no data is waited for (the bound), summed.
//!
//! Reading order: draw, slow, exhaustive, experience, judged, campaign, table.

pub mod campaign;
pub mod draw;
mod exhaustive;
mod experience;
mod judged;
pub mod slow;
pub mod table;

pub use campaign::{DecideError, DecideOptions, Decided, Played, decide, is_served, trials};
pub use draw::{Drawn, Kind, draw};
pub use judged::{Decision, Row, Trials};

#[cfg(test)]
mod tests;
