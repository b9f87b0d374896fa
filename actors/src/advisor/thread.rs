//! The thread that asks: a runtime of its own, whose every call may be slow. It outlives the actor that it answers.

use crate::mailbox::Mailbox;
use rudder_advisor::experience::{Experience, Store};
use rudder_advisor::open::open;
use rudder_advisor::{Consultant, Consulted, Source};
use rudder_dataplane::place_control;
use rudder_messages::AdvisorMessage;
use rudder_policy::advice::breaker::BreakerState;
use rudder_policy::advice::cost::OpportunityCost;
use rudder_policy::advice::coverage::AnswerCounts;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::options::About;
use rudder_policy::advice::report::Past;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};
use rudder_topology::{Advisor, Cores};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// What the thread is asked.
pub(super) enum Asked {
    Consult {
        state: Box<ClusterState>,
        past: Vec<Past>,
        about: About,
    },
    /// A directive was judged; where it was taken back, it hurt.
    Judged {
        directive: Directive,
        outcome: Outcome,
        cost: Option<OpportunityCost>,
    },
}

/// What the thread tells of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Who answers, once somebody was looked for, and why it is whom it is.
    pub who: Option<String>,
    pub why: Option<String>,
    pub answers: AnswerCounts,
    pub breaker: Option<BreakerState>,
}

type SharedTold = Arc<Mutex<Told>>;

/// The thread's handle; the thread ends with its last one.
pub(super) struct AdvisorThread {
    questions: mpsc::UnboundedSender<Asked>,
    told: SharedTold,
}

impl AdvisorThread {
    /// Answers go to the mailbox. The thread, and whatever it starts, keeps off the cores of movers and training.
    pub fn start(
        advisor: &Advisor,
        cores: Cores,
        labels: Labels,
        evaluator: Evaluator,
        to: Mailbox<AdvisorMessage>,
    ) -> std::io::Result<AdvisorThread> {
        let (questions, asked) = mpsc::unbounded_channel();
        let told = SharedTold::default();
        let (advisor, telling) = (advisor.clone(), told.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("advisor".to_owned()).spawn(move || {
            match place_control(&cores) {
                Ok(placement) => tracing::info!(%placement, "the advisor's thread"),
                Err(error) => tracing::warn!(%error, "the advisor's thread is not bound"),
            }
            runtime.block_on(run(advisor, labels, evaluator, asked, to, telling));
        })?;
        Ok(AdvisorThread { questions, told })
    }

    pub fn told(&self) -> Told {
        lock(&self.told).clone()
    }

    /// There is at most one consult on its way, so this queue does not grow.
    pub fn ask(&self, asked: Asked) {
        // The thread ends only with this handle.
        let _ = self.questions.send(asked);
    }
}

fn lock(told: &SharedTold) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn run(
    advisor: Advisor,
    labels: Labels,
    evaluator: Evaluator,
    mut asked: mpsc::UnboundedReceiver<Asked>,
    to: Mailbox<AdvisorMessage>,
    told: SharedTold,
) {
    let mut consultant: Option<Consultant> = None;
    let store = advisor.experience.as_deref().and_then(|path| match Store::open(path) {
        Ok(store) => Some(store),
        Err(error) => {
            tracing::warn!(%error, "no experience is kept");
            None
        }
    });
    // The last answer, until it is judged.
    let mut last: Option<Experience> = None;
    while let Some(asked) = asked.recv().await {
        let (state, past, about) = match asked {
            Asked::Consult { state, past, about } => (state, past, about),
            Asked::Judged { directive, outcome, cost } => {
                if let Some(consultant) =
                    consultant.as_mut().filter(|_| outcome.verdict == TrialVerdict::Reverted)
                {
                    consultant.hurt(&directive);
                }
                if let (Some(store), Some(answer)) = (&store, last.take()) {
                    let experience = Experience { outcome, cost, ..answer };
                    keep(store, &experience);
                }
                continue;
            }
        };
        let consultant = match &mut consultant {
            Some(consultant) => consultant,
            none => none.insert(begin(&advisor, &labels, &told).await.with_evaluator(evaluator.clone())),
        };
        consultant.set_topology(who_is_up(&state));
        let consulted = consultant.consult_about(&state, &past, &about).await;
        let actions: Vec<_> = consulted.directive.actions.iter().map(|a| a.describe(&labels)).collect();
        let rules = matches!(consulted.source, Source::Rules { .. });
        let who = if rules { "rules".to_owned() } else { consultant.backend_name() };
        count(&mut lock(&told), &consulted, consultant.breaker());
        tracing::info!(
            backend = %consultant.backend_name(), source = ?consulted.source, rules, ?actions,
            predicted = consulted.predicted, refused = consulted.refusals.len(), attempts = consulted.attempts.len(),
            breaker = ?consultant.breaker(), "the advisor answered"
        );
        let answer = AdvisorMessage::Answered {
            directive: Box::new(consulted.directive.clone()),
            predicted: consulted.predicted,
        };
        let said_nothing = consulted.directive.actions.is_empty();
        let experience = unjudged(who, *state, consulted);
        // What changes nothing is never judged; that it was answered so is experience all the same.
        last = match &store {
            Some(store) if said_nothing => {
                keep(store, &experience);
                None
            }
            _ => Some(experience),
        };
        to.send(answer);
    }
}

/// An answer with all that was known of it before anything came of it.
fn unjudged(backend: String, state: ClusterState, consulted: Consulted) -> Experience {
    let (predicted, verdict) = (consulted.predicted, TrialVerdict::Expired);
    Experience {
        backend,
        source: consulted.source,
        state,
        options: consulted.options,
        directive: consulted.directive,
        refusals: consulted.refusals,
        dropped: consulted.dropped,
        outcome: Outcome { predicted, measured: None, verdict },
        cost: None,
    }
}

fn keep(store: &Store, experience: &Experience) {
    if let Err(error) = store.add(experience) {
        tracing::warn!(%error, "an experience was not kept");
    }
}

fn count(told: &mut Told, consulted: &Consulted, breaker: BreakerState) {
    let answers = &mut told.answers;
    match &consulted.source {
        Source::Backend => answers.by_backend += 1,
        Source::Cache => answers.by_cache += 1,
        Source::Rules { .. } => answers.by_rules += 1,
    }
    answers.actions_taken += consulted.directive.actions.len() as u64;
    answers.actions_refused += consulted.refusals.len() as u64;
    answers.actions_dropped += consulted.dropped.len() as u64;
    told.breaker = Some(breaker);
}

/// The back end is looked for at the first edge: until then nothing is dialled.
async fn begin(advisor: &Advisor, labels: &Labels, told: &SharedTold) -> Consultant {
    let seed = u64::from(std::process::id());
    let opened = match open(advisor).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::warn!(backend = advisor.backend.name(), %error, "the rules advise instead");
            rudder_advisor::open::rules(error.to_string())
        }
    };
    if let Some(why) = &opened.why {
        tracing::info!(%why, "advisor");
    }
    (lock(told).who, lock(told).why) = (Some(opened.backend.name()), opened.why);
    Consultant::new(opened.backend, advisor, labels.clone(), seed)
}

/// Tells clusters apart in which other nodes are up.
fn who_is_up(state: &ClusterState) -> u64 {
    let compute = state.compute.iter().map(|compute| (1_u64, u64::from(compute.node.0)));
    let storage = state.storage.iter().filter(|s| s.up).map(|storage| (2, u64::from(storage.node.0)));
    let key = rudder_graph::random::Key::new(0);
    compute.chain(storage).fold(key, |key, (kind, node)| key.with(kind).with(node)).draw(0)
}
