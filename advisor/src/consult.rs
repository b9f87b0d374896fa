//! One consult: the cache, the circuit breaker, bounded attempts within a deadline, the parser, the evaluator; and the
//! rules, whatever happens.

use crate::backend::{Backend, BackendError, Question, Reply};
use crate::chooser::ChooserBackend;
use rudder_graph::random::Key;
use rudder_policy::advice::breaker::{Breaker, BreakerConfig, BreakerState, Permission};
use rudder_policy::advice::choose::Chooser;
use rudder_policy::advice::directive::{Action, Directive};
use rudder_policy::advice::evaluate::Evaluator;
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::lever::Vocabulary;
use rudder_policy::advice::options::{About, Choice, Options, options};
use rudder_policy::advice::parse::{Answer, Asked, Refused, parse};
use rudder_policy::advice::prompt::prompt;
use rudder_policy::advice::report::{Past, Reporter};
use rudder_policy::advice::retry::Retry;
use rudder_policy::advice::reuse::DirectiveCache;
use rudder_policy::advice::schema::Form;
use rudder_policy::advice::state::ClusterState;
use rudder_topology::{Advisor, AnswerForm};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Where a directive came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The back end answered.
    #[default]
    Backend,
    /// A similar state had one.
    Cache,
    /// The rules, and why not the back end.
    Rules { because: String },
}

/// One attempt at the back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub took: Duration,
    /// What came, or why nothing did.
    pub result: Result<Reply, BackendError>,
}

/// What a consult came to. There always is one, though its directive may be empty.
#[derive(Clone, Debug)]
pub struct Consulted {
    pub directive: Directive,
    /// The sum of what is expected of its actions.
    pub predicted: f32,
    pub source: Source,
    /// Actions that are expected to hurt, with what is expected: left out.
    pub dropped: Vec<Choice>,
    pub refusals: Vec<Refused>,
    /// As shown, in their order.
    pub options: Options,
    pub attempts: Vec<Attempt>,
}

/// What a consult is about.
struct Subject<'a> {
    state: &'a ClusterState,
    report: &'a str,
    options: &'a Options,
    vocabulary: &'a Vocabulary,
    key: Key,
}

/// Asks one back end about one cluster, and remembers what a good asker remembers.
pub struct Consultant {
    backend: Box<dyn Backend>,
    labels: Labels,
    form: Form,
    time_max: Duration,
    retry: Retry,
    breaker: Breaker,
    cache: DirectiveCache,
    reporter: Reporter,
    evaluator: Evaluator,
    /// Refusals of the last answer, for the next prompt.
    refusals: Vec<Refused>,
    consults: u64,
    seed: Key,
    started: Instant,
}

impl Consultant {
    #[must_use]
    pub fn new(backend: Box<dyn Backend>, advisor: &Advisor, labels: Labels, seed: u64) -> Self {
        let form = match advisor.form {
            AnswerForm::Options => Form::Options,
            AnswerForm::Actions => Form::Actions,
        };
        Consultant {
            backend,
            labels,
            form,
            time_max: Duration::from_nanos(advisor.deadline.0),
            retry: Retry { attempts_max: advisor.attempts, ..Retry::default() },
            breaker: Breaker::new(BreakerConfig::default()),
            cache: DirectiveCache::new(advisor.similarity_percent as f32 / 100.0),
            reporter: Reporter::default(),
            evaluator: Evaluator::default(),
            refusals: vec![],
            consults: 0,
            seed: Key::new(seed),
            started: Instant::now(),
        }
    }

    /// With another circuit breaker.
    #[must_use]
    pub fn with_breaker(mut self, config: BreakerConfig) -> Self {
        self.breaker = Breaker::new(config);
        self
    }

    /// With an evaluator that was learned from experience.
    #[must_use]
    pub fn with_evaluator(mut self, evaluator: Evaluator) -> Self {
        self.evaluator = evaluator;
        self
    }

    #[must_use]
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.breaker.state()
    }

    #[must_use]
    pub fn backend_name(&self) -> String {
        self.backend.name()
    }

    /// The cluster has other nodes or links, or other ones are up: what was answered for the former is forgotten.
    pub fn set_topology(&mut self, digest: u64) {
        self.cache.set_topology(digest);
    }

    /// A directive was taken back: it is not used again.
    pub fn hurt(&mut self, directive: &Directive) {
        self.cache.forget(directive);
    }

    /// Consults. Takes no longer than the deadline and what the rules take, which is next to nothing.
    pub async fn consult(&mut self, state: &ClusterState, past: &[Past]) -> Consulted {
        self.consult_about(state, past, &About::default()).await
    }

    /// The same, about these nodes before others, and about nothing that did not help not long ago.
    pub async fn consult_about(&mut self, state: &ClusterState, past: &[Past], about: &About) -> Consulted {
        self.consults += 1;
        let key = self.seed.with(self.consults);
        let vocabulary = Vocabulary::about(state, &self.labels, &about.focus);
        let options = options(state, &vocabulary, about, &self.evaluator, key);
        let metrics = state.metrics(&self.labels);
        if let Some(known) = self.cache.find(&metrics) {
            let (directive, source) = (known.clone(), Source::Cache);
            return judge(directive.actions, source, state, options, vec![], vec![], &self.evaluator);
        }
        let report = self.reporter.compact(state, &self.labels, past);
        let mut attempts = vec![];
        let deadline = Instant::now() + self.time_max;
        let subject = Subject { state, report: &report, options: &options, vocabulary: &vocabulary, key };
        let (answer, source) = match self.ask(&subject, deadline, &mut attempts).await {
            Ok(answer) => (answer, Source::Backend),
            Err(because) => {
                tracing::warn!(backend = %self.backend.name(), %because, "the rules advise instead");
                (self.rules(&subject), Source::Rules { because })
            }
        };
        let cached = source == Source::Backend;
        let consulted =
            judge(answer.actions, source, state, options, answer.refusals, attempts, &self.evaluator);
        if cached {
            self.cache.insert(&metrics, consulted.directive.clone());
        }
        consulted
    }

    /// What the rules answer; the refusals are those of the back end.
    fn rules(&self, subject: &Subject<'_>) -> Answer {
        let question = self.question(subject, Duration::ZERO);
        let asked = Asked { vocabulary: subject.vocabulary, options: &subject.options.actions() };
        let answer = parse(&ChooserBackend(Chooser::Rules).answer(&question).text, asked);
        Answer { refusals: self.refusals.clone(), ..answer }
    }

    fn question(&self, subject: &Subject<'_>, time_max: Duration) -> Question {
        let &Subject { state, report, options, vocabulary, key } = subject;
        let prompt = prompt(self.form, report, options, vocabulary, &self.refusals, &self.labels);
        Question { prompt, options: options.clone(), state: state.clone(), key, time_max }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Asks until there is an answer that says something, or no more attempt, time or permission.
    async fn ask(
        &mut self,
        subject: &Subject<'_>,
        deadline: Instant,
        attempts: &mut Vec<Attempt>,
    ) -> Result<Answer, String> {
        let actions = subject.options.actions();
        let asked = Asked { vocabulary: subject.vocabulary, options: &actions };
        loop {
            if let Permission::Refused { .. } = self.breaker.ask(self.now_ns()) {
                return Err("the circuit breaker is open".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let question = self.question(subject, left);
            let attempt = attempt(&*self.backend, &question).await;
            attempts.push(attempt.clone());
            let reason = match attempt.result {
                Ok(reply) => {
                    let answer = parse(&reply.text, asked);
                    self.refusals.clone_from(&answer.refusals);
                    if !answer.actions.is_empty() || answer.refusals.is_empty() {
                        self.breaker.succeeded();
                        return Ok(answer);
                    }
                    format!("nothing of the answer could be taken: {}", answer.refusals[0])
                }
                Err(error) => error.to_string(),
            };
            self.breaker.failed(self.now_ns());
            let failed = u32::try_from(attempts.len()).unwrap_or(u32::MAX);
            let Some(pause) = self.retry.pause_after(failed, subject.key).map(Duration::from_nanos) else {
                return Err(reason);
            };
            let again = Instant::now() + pause;
            if again >= deadline {
                return Err(reason);
            }
            tokio::time::sleep_until(again.into()).await;
        }
    }
}

/// Asks once, for no longer than the question's time, and says how long it took.
pub async fn attempt(backend: &dyn Backend, question: &Question) -> Attempt {
    let began = Instant::now();
    let within = question.time_max;
    let result = tokio::time::timeout(within, backend.ask(question)).await;
    let result = result.unwrap_or(Err(BackendError::Deadline { within }));
    Attempt { took: began.elapsed(), result }
}

/// Leaves out what is not expected to help.
fn judge(
    actions: Vec<Action>,
    source: Source,
    state: &ClusterState,
    options: Options,
    refusals: Vec<Refused>,
    attempts: Vec<Attempt>,
    evaluator: &Evaluator,
) -> Consulted {
    let judge = |action| Choice { action, predicted: evaluator.predict(&action, state) };
    let (dropped, kept): (Vec<_>, Vec<_>) =
        actions.into_iter().map(judge).partition(|choice| choice.predicted >= 0.0);
    let predicted = kept.iter().map(|choice| choice.predicted).sum();
    let directive = Directive { actions: kept.into_iter().map(|choice| choice.action).collect() };
    Consulted { directive, predicted, source, dropped, refusals, options, attempts }
}
