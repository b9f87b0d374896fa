//! Thin drivers: a message comes in, pure policy decides, its commands are carried out.
//!
//! ```text
//! node (one for one; gives up -> the process ends)
//! ├─ responder                 answers `rudder tree`
//! ├─ collector                 scheduler nodes: last reports of all nodes
//! ├─ advisor                   scheduler nodes: when to ask, what to take back; asks on a thread of its own
//! ├─ storage                   storage nodes
//! │  └─ acceptor               data port -> handshake -> storage mover's thread
//! ├─ loop [dataset]            compute nodes, one per dataset
//! │  ├─ mover                  transfers <-> compute mover's thread
//! │  ├─ validator
//! │  ├─ planner
//! │  └─ predictor
//! ├─ gateway                   compute nodes: trainers
//! ├─ director                  compute nodes: directives -> parameters; the rules where no advisor is heard
//! └─ observer                  /proc, NVML, counters -> report
//! ```
//!
//! State survives an actor's panic: engines, windows, queues, sockets, connections and movers' threads belong to the
//! supervisor's side ([`dataset`], [`mailbox`], [`trainers`]); an actor is a place where work is done and may fail.
//!
//! Reading order: clock, mailbox, supervisor, worker; trainers, timer, dataset; the fast loop (gateway, predictor,
//! planner, validator, mover, links); acceptor, owners; counters, observer, responder, collector, advisor, director; node (puts it together).

#![forbid(unsafe_code)]

pub mod clock;
pub mod mailbox;

pub mod supervisor;
pub mod worker;

pub mod timer;
pub mod trainers;

pub mod dataset;

pub mod gateway;
pub mod predictor;
pub mod replays;

pub mod planner;
pub mod validator;

pub mod links;
pub mod mover;

pub mod acceptor;
pub mod owners;

pub mod counters;
pub mod observer;

pub mod collector;
pub mod responder;

pub mod advisor;
pub mod director;

pub mod node;
