//! Scenarios: a file that says what to compare, real processes that run it, and the report.
//!
//! Reading order: arm, spec, compile, trainer, relay, run, report.

#![forbid(unsafe_code)]

pub mod arm;
pub mod compile;
pub mod record;
pub mod relay;
pub mod report;
pub mod run;
pub mod spec;
pub mod stop;
pub use rudder_graph::trace;
pub mod trainer;
