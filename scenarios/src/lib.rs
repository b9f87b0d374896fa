//! Scenarios: a file that says what to compare, real processes or a simulation that run it, and the report.
//!
//! Reading order: arm, spec, compile, workload, trainer, relay, run, sim, report, calibrate, scale, fuzz, parallel,
//! progress, sweep, advise, decide.

#![forbid(unsafe_code)]

pub mod advise;
pub mod arm;
pub mod calibrate;
pub mod compile;
pub mod decide;
pub mod fuzz;
mod parallel;
mod progress;
pub mod record;
pub mod relay;
pub mod report;
pub mod run;
pub mod scale;
pub mod sim;
pub mod spec;
pub mod stop;
pub mod sweep;
pub mod trainer;
pub mod workload;
