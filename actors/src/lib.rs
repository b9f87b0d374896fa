//! Thin drivers: a message comes in, pure policy decides, its commands are carried out.

#![forbid(unsafe_code)]

pub mod clock;
pub mod mailbox;

pub mod supervisor;
pub mod worker;
