//! The thread that asks: a runtime of its own, whose every call may be slow. It outlives the actor that it answers.

use ractor::ActorRef;
use rudder_advisor::experience::{Experience, Store};
use rudder_advisor::open::open;
use rudder_advisor::train;
use rudder_advisor::{Consultant, Consulted, Source};
use rudder_messages::AdvisorMessage;
use rudder_policy::advice::cost::OpportunityCost;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::report::Past;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::{Outcome, TrialVerdict};
use rudder_topology::Advisor;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// What the thread is asked.
pub(super) enum Asked {
    Consult {
        state: Box<ClusterState>,
        past: Vec<Past>,
    },
    /// A directive was judged; where it was taken back, it hurt.
    Judged {
        directive: Directive,
        outcome: Outcome,
        cost: Option<OpportunityCost>,
    },
}

type Answers = Arc<Mutex<Option<ActorRef<AdvisorMessage>>>>;

/// The thread's handle; the thread ends with its last one.
pub(super) struct AdvisorThread {
    questions: mpsc::UnboundedSender<Asked>,
    answers: Answers,
}

impl AdvisorThread {
    pub fn start(advisor: &Advisor, labels: Labels) -> std::io::Result<AdvisorThread> {
        let (questions, asked) = mpsc::unbounded_channel();
        let answers = Answers::default();
        let (advisor, to) = (advisor.clone(), answers.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("advisor".to_owned())
            .spawn(move || runtime.block_on(run(advisor, labels, asked, to)))?;
        Ok(AdvisorThread { questions, answers })
    }

    /// There is at most one consult on its way, so this queue does not grow.
    pub fn ask(&self, asked: Asked) {
        // The thread ends only with this handle.
        let _ = self.questions.send(asked);
    }

    /// From now on this actor gets the answers.
    pub fn answer_to(&self, actor: ActorRef<AdvisorMessage>) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner) = Some(actor);
    }
}

async fn run(advisor: Advisor, labels: Labels, mut asked: mpsc::UnboundedReceiver<Asked>, to: Answers) {
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
        let (state, past) = match asked {
            Asked::Consult { state, past } => (state, past),
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
            none => none.insert(begin(&advisor, &labels).await),
        };
        consultant.set_topology(who_is_up(&state));
        let consulted = consultant.consult(&state, &past).await;
        let actions: Vec<_> = consulted.directive.actions.iter().map(|a| a.describe(&labels)).collect();
        let rules = matches!(consulted.source, Source::Rules { .. });
        let who = if rules { "rules".to_owned() } else { consultant.backend_name() };
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
        if let Some(actor) = &*to.lock().unwrap_or_else(PoisonError::into_inner) {
            // An actor that has just failed lost its question, too.
            let _ = actor.send_message(answer);
        }
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

/// The back end is looked for at the first edge: until then nothing is dialled.
async fn begin(advisor: &Advisor, labels: &Labels) -> Consultant {
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
    let consultant = Consultant::new(opened.backend, advisor, labels.clone(), seed);
    match advisor.evaluator.as_deref().map(train::read) {
        Some(Ok(evaluator)) => consultant.with_evaluator(evaluator),
        Some(Err(error)) => {
            tracing::warn!(%error, "the closed form evaluates");
            consultant
        }
        None => consultant,
    }
}

/// Tells clusters apart in which other nodes are up.
fn who_is_up(state: &ClusterState) -> u64 {
    let compute = state.compute.iter().map(|compute| (1_u64, u64::from(compute.node.0)));
    let storage = state.storage.iter().filter(|s| s.up).map(|storage| (2, u64::from(storage.node.0)));
    let key = rudder_graph::random::Key::new(0);
    compute.chain(storage).fold(key, |key, (kind, node)| key.with(kind).with(node)).draw(0)
}
