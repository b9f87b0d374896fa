//! Consults for whoever has no runtime and may wait: simulations in virtual time.

use crate::backend::BackendError;
use crate::consult::{Consultant, Consulted};
use crate::open::open;
use crate::train::{TrainError, read};
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::options::About;
use rudder_policy::advice::report::Past;
use rudder_policy::advice::state::ClusterState;
use rudder_topology::Advisor;

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskerError {
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the evaluator: {0}")]
    Evaluator(#[from] TrainError),
}

/// A consultant with a runtime of its own.
pub struct Asker {
    runtime: tokio::runtime::Runtime,
    consultant: Consultant,
}

impl Asker {
    /// Opens the back end. Consults with the same seed show their options in the same order.
    pub fn open(advisor: &Advisor, labels: Labels, seed: u64) -> Result<Asker, AskerError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = runtime.block_on(open(advisor))?;
        let mut consultant = Consultant::new(opened.backend, advisor, labels, seed);
        if let Some(path) = &advisor.evaluator {
            consultant = consultant.with_evaluator(read(path)?);
        }
        Ok(Asker { runtime, consultant })
    }

    /// See [`Consultant::consult_about`]; waits for the answer.
    pub fn consult(&mut self, state: &ClusterState, past: &[Past], about: &About) -> Consulted {
        self.runtime.block_on(self.consultant.consult_about(state, past, about))
    }

    /// See [`Consultant::hurt`].
    pub fn hurt(&mut self, directive: &Directive) {
        self.consultant.hurt(directive);
    }

    /// Who says what is worth asking about.
    #[must_use]
    pub fn evaluator(&self) -> &Evaluator {
        self.consultant.evaluator()
    }

    #[must_use]
    pub fn backend_name(&self) -> String {
        self.consultant.backend_name()
    }
}
