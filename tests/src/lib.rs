//! Whole-system tests. The library holds what several of them use; each file in `tests/tests/` is one subject.
//!
//! Reading order: source, tidy, docs, layering, process, simulation.

#![forbid(unsafe_code)]

pub mod docs;
pub mod layering;
pub mod process;
pub mod simulation;
pub mod source;
pub mod tidy;
