//! Every arm against a brute-force twin: a naive implementation of its definition, written without a look at the
//! arm's, compared after every minibatch on the rows fetched and the blocks resident. The arm runs in the engine with
//! the validator between, and everything in flight arrives at once.

#[path = "twins/demand.rs"]
mod demand;
#[path = "twins/kept.rs"]
mod kept;
#[path = "twins/play.rs"]
mod play;
#[path = "twins/superbatch.rs"]
mod superbatch;
