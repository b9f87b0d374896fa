//! Who is asked at an edge, and how: back ends behind one small trait, and consults that never fail.
//!
//! Everything that decides is in [`rudder_policy::advice`]; here is what talks to servers and files. Nothing here is
//! near the fast loop: whoever drives it does so on threads of its own.
//!
//! Reading order: backend (the trait), http, ollama, openai, chooser, replay, open (which back end a topology means),
//! consult (one consult, whatever happens), blocking (the same without a runtime), experience (what came of it), train (what is learned from it).

#![forbid(unsafe_code)]

pub mod backend;

mod http;

pub mod chooser;
pub mod ollama;
pub mod openai;
pub mod replay;

pub mod open;
pub mod secret;

pub mod blocking;
pub mod consult;

pub mod experience;
pub mod train;

pub use backend::{Answering, Backend, BackendError, Question, Reply};
pub use consult::{Consultant, Consulted, Source};
