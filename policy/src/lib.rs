//! Pure policies.

pub mod restart;

pub mod oracle;
