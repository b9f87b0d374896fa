//! Movers over loopback, on every backend that runs here.

#![allow(unsafe_code)]

#[path = "support/data.rs"]
pub mod data;
#[path = "support/rig.rs"]
mod support;

#[path = "movers/behaviour.rs"]
mod behaviour;
#[path = "movers/serving.rs"]
mod serving;
#[path = "movers/staging.rs"]
mod staging;
