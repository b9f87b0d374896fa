//! The state report: the full form for people and large models, and the compact form with a constant budget.

mod compact;
mod full;

pub use compact::{Past, REPORT_BYTES_MAX, REPORT_TOKENS_MAX, Reporter};
pub use full::full;

use std::fmt;

/// A fraction in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Below 0.3.
    Low,
    Medium,
    /// From 0.7 on.
    High,
}

impl Level {
    #[must_use]
    pub fn of(fraction: f32) -> Self {
        if fraction < 0.3 {
            Level::Low
        } else if fraction < 0.7 {
            Level::Medium
        } else {
            Level::High
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
        })
    }
}

#[cfg(test)]
mod tests;
