//! The reference trainer.
pub mod event;
pub mod ring;
