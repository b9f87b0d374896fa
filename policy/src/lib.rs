//! Pure: what a node decides, as plain data and functions. No runtime, no clock, no files, no global randomness.
//!
//! Reading order: step (what goes in and out), window, cache, geometry, links (the facts), view (what a policy sees),
//! predict (what will be used), arms (the policies), validate (the hard rules), engine (the stages of the fast loop),
//! advice (the slow loop), then the rest.

#![forbid(unsafe_code)]

pub mod step;

pub mod cache;
pub mod geometry;
pub mod links;
pub mod window;

pub mod parameters;
pub mod predict;
pub mod prior;
pub mod view;

mod arms;
mod validate;

pub mod engine;
pub mod ledger;

pub mod advice;

pub mod guard;
pub mod shadow;

pub mod oracle;
pub mod pacing;
pub mod queue;
pub mod replay;
pub mod restart;
pub mod staging;

#[doc(hidden)]
pub mod testing;
