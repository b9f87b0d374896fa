//! The slow loop, as plain data and state machines: observe → edge trigger → consult → directive → evaluate → trial.
//!
//! What an advisor says is outside input. It can only choose among levers that are each safe at every value that the
//! parser lets through, it acts by a new [`crate::parameters::Parameters`], and a trial takes back what hurts. The
//! fast loop never waits for any of it.
//!
//! Reading order: state (what observers measured), sample and observe (how it is found out), labels (how nodes are called), trigger, coalesce and rotation (when to ask, and about whom),
//! report (what is told), lever, directive, schema, parse (what may be answered), evaluate, features, options, choose (rules and
//! controls), distilled (a small learned model), prompt; reuse, breaker, retry (asking well); enact (directive to parameters), trial (was it good), cost (what it kept from others);
//! slow_loop (all of it, in order), coverage (does it live).

pub mod labels;
pub mod state;

pub mod observe;
pub mod sample;

pub mod coalesce;
pub mod rotation;
pub mod trigger;

pub mod report;

pub mod directive;
pub mod enact;
pub mod lever;
pub mod parse;
pub mod schema;

pub mod choose;
pub mod distilled;
pub mod evaluate;
pub mod features;
pub mod options;
pub mod prompt;

pub mod breaker;
pub mod retry;
pub mod reuse;

pub mod cost;
pub mod trial;

pub mod coverage;
pub mod slow_loop;
