//! What a node's slow loop says of itself: who decides, why it is whom it is, and whether every decision that was due
//! was made.

use crate::codec::DecodeError;
use rudder_policy::advice::breaker::BreakerState;
use rudder_policy::advice::coverage::{AnswerCounts, Coverage};
use rudder_policy::advice::slow_loop::SlowCounts;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Loops of a node at most: the advisor's and the director's.
pub const LOOPS_MAX: usize = 2;
/// Characters of a name or reason.
pub const TEXT_CHARS_MAX: usize = 200;

/// Which loop of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// The cluster's, on its scheduler node.
    Advisor,
    /// A compute node's own: it follows an advisor, or its own rules.
    Director,
}

/// One loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    pub kind: LoopKind,
    /// Who decides: a back end with its model, the rules, an advisor elsewhere.
    pub who: String,
    /// Why it is whom it is, where there was something to decide.
    pub why: Option<String>,
    pub coverage: Coverage,
    pub consults: SlowCounts,
    pub answers: AnswerCounts,
    /// Of the back end, once there is one.
    pub breaker: Option<BreakerState>,
}

impl Decisions {
    /// Texts are clipped, and on one line.
    #[must_use]
    pub fn new(kind: LoopKind, who: &str, why: Option<&str>) -> Self {
        Decisions {
            kind,
            who: clip(who),
            why: why.map(clip),
            coverage: Coverage::default(),
            consults: SlowCounts::default(),
            answers: AnswerCounts::default(),
            breaker: None,
        }
    }

    /// What came from another node may be anything.
    pub(crate) fn check(loops: &[Decisions]) -> Result<(), DecodeError> {
        let long = |text: &str| text.chars().count() > TEXT_CHARS_MAX;
        let bad = |of: &Decisions| long(&of.who) || of.why.as_deref().is_some_and(long);
        if loops.len() > LOOPS_MAX || loops.iter().any(bad) {
            return Err(DecodeError::Malformed("decisions beyond their bounds".to_owned()));
        }
        Ok(())
    }
}

fn clip(text: &str) -> String {
    let one_line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    one_line.take(TEXT_CHARS_MAX).collect()
}

impl fmt::Display for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            LoopKind::Advisor => "advisor",
            LoopKind::Director => "director",
        };
        write!(f, "{kind} decisions: by {}", self.who)?;
        if let Some(why) = &self.why {
            write!(f, " ({why})")?;
        }
        let coverage = self.coverage;
        write!(f, "; {} of {} due made", coverage.decided, coverage.decided + coverage.missed)?;
        write!(f, " ({:.1} %)", coverage.share() * 100.0)?;
        if coverage.minibatches > 0 {
            let covered = coverage.minibatches_covered as f64 / coverage.minibatches as f64 * 100.0;
            write!(f, ", {covered:.1} % of {} minibatches covered", coverage.minibatches)?;
        }
        let (consults, answers) = (self.consults, self.answers);
        if consults.consults > 0 {
            write!(f, "; {} consults", consults.consults)?;
            let parts = [
                (answers.by_backend, "answered"),
                (answers.by_cache, "as before"),
                (answers.by_rules, "degraded to rules"),
                (consults.lost, "lost"),
                (consults.kept, "kept"),
                (consults.reverted, "reverted"),
                (answers.actions_refused, "actions refused"),
            ];
            for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
                write!(f, ", {count} {what}")?;
            }
        }
        match self.breaker {
            Some(BreakerState::Open) => write!(f, "; circuit breaker open"),
            Some(BreakerState::HalfOpen) => write!(f, "; circuit breaker half open"),
            Some(BreakerState::Closed) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_why_and_how_many() {
        let mut decisions = Decisions::new(LoopKind::Advisor, "rules", Some("no Ollama\nanswers"));
        let expected = "advisor decisions: by rules (no Ollama answers); 0 of 0 due made (100.0 %)";
        assert_eq!(decisions.to_string(), expected);
        decisions.coverage =
            Coverage { due: 9, decided: 7, missed: 1, minibatches: 200, minibatches_covered: 150 };
        decisions.consults = SlowCounts { consults: 3, reverted: 1, ..SlowCounts::default() };
        decisions.answers = AnswerCounts { by_rules: 2, ..AnswerCounts::default() };
        decisions.breaker = Some(BreakerState::Open);
        let expected = "advisor decisions: by rules (no Ollama answers); 7 of 8 due made (87.5 %), \
                        75.0 % of 200 minibatches covered; 3 consults, 2 degraded to rules, 1 reverted; circuit \
                        breaker open";
        assert_eq!(decisions.to_string(), expected);
    }

    #[test]
    fn texts_and_lists_are_bounded() {
        let long = "x".repeat(5000);
        let decisions = Decisions::new(LoopKind::Director, &long, Some(&long));
        assert!(Decisions::check(std::slice::from_ref(&decisions)).is_ok());
        assert!(Decisions::check(&[decisions.clone(), decisions.clone(), decisions.clone()]).is_err());
        let wild = Decisions { who: long, ..decisions };
        assert!(Decisions::check(&[wild]).is_err());
    }
}
