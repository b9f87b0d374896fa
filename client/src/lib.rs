//! The trainer's side and the data port's two ends. Blocking: no runtime, no threads of its own, no globals.
//!
//! Reading order: location, trainer_protocol, trainer.

pub mod location;
pub mod trainer;
pub mod trainer_protocol;

pub mod frame_stream;
pub mod frames;
pub mod handshake;
pub mod identity;
pub mod put;

pub mod fetch;
pub mod push;

pub mod dataset;
pub mod gather;
