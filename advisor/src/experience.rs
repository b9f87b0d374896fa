//! Experience: what was known, what was shown and in which order, what was answered and what of it was refused, what was
//! expected, what came of it and what it cost others.

pub mod store;

use crate::consult::Source;
use rudder_policy::advice::cost::OpportunityCost;
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::features::{INPUTS, inputs};
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::options::{Choice, Options};
use rudder_policy::advice::parse::Refused;
use rudder_policy::advice::report::Reporter;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::Outcome;
use serde::{Deserialize, Serialize};
use serde_json::json;
pub use store::{ExperienceError, Retention, Store};

/// One judged directive. What entries of earlier versions lack is empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experience {
    /// Who answered, as the back end calls itself, or `rules`.
    pub backend: String,
    /// Whether the back end answered at all; if not, why.
    #[serde(default)]
    pub source: Source,
    /// The state that was asked about.
    pub state: ClusterState,
    /// What could be chosen, in the order in which it was shown.
    #[serde(default)]
    pub options: Options,
    pub directive: Directive,
    /// What of the answer was not taken, and why.
    #[serde(default)]
    pub refusals: Vec<Refused>,
    /// Actions that the evaluator left out, with what it expected of them.
    #[serde(default)]
    pub dropped: Vec<Choice>,
    pub outcome: Outcome,
    /// `None` where too little was measured to tell.
    #[serde(default)]
    pub cost: Option<OpportunityCost>,
}

impl Experience {
    /// The change of the wait share for the better; `None` where nothing was measured.
    #[must_use]
    pub fn reward(&self) -> Option<f32> {
        self.outcome.measured.map(|change| -change)
    }

    /// The sum of its actions' inputs: what the evaluator learns the measured change from.
    #[must_use]
    pub fn inputs(&self) -> [f32; INPUTS] {
        let mut sum = [0.0; INPUTS];
        for action in &self.directive.actions {
            for (into, value) in sum.iter_mut().zip(inputs(action, &self.state)) {
                *into += value;
            }
        }
        sum
    }

    /// Nodes in the order of the state.
    #[must_use]
    pub fn labels(&self) -> Labels {
        let compute = self.state.compute.iter().map(|compute| compute.node).collect();
        let storage = self.state.storage.iter().map(|storage| storage.node).collect();
        Labels::new(compute, storage)
    }

    /// A line of chat fine-tuning data: the question, the answer in the form that is asked for, and the reward. Nodes
    /// have the labels of their order in the state.
    #[must_use]
    pub fn chat(&self) -> serde_json::Value {
        let labels = self.labels();
        let report = Reporter::default().compact(&self.state, &labels, &[]);
        let actions: Vec<_> = self.directive.actions.iter().map(|action| action.to_json(&labels)).collect();
        let answer = json!({ "actions": actions, "reason": "" });
        json!({
            "messages": [
                { "role": "user", "content": report },
                { "role": "assistant", "content": answer.to_string() },
            ],
            "reward": self.reward(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rudder_policy::advice::directive::{Action, Change};
    use rudder_policy::advice::parse::RefusalReason;
    use rudder_policy::advice::trial::TrialVerdict;
    use rudder_policy::parameters::Posture;
    use rudder_topology::NodeId;

    pub(crate) fn experience(minibatch: u64) -> Experience {
        let action = |posture| Action { compute: NodeId(0), change: Change::Posture(posture), ttl_s: 60 };
        let choice = |posture| Choice { action: action(posture), predicted: -0.1 };
        let refused = |reason| Refused { lever: Some("posture"), field: Some("compute"), reason };
        Experience {
            backend: "rules".to_owned(),
            source: Source::Rules { because: "no answer within 2s".to_owned() },
            state: ClusterState { minibatch, ..ClusterState::default() },
            options: Options {
                shown: [Posture::DemandFirst, Posture::DemandOnly].map(choice).to_vec(),
                ranks: vec![1, 0],
            },
            directive: Directive { actions: vec![action(Posture::DemandOnly)] },
            refusals: vec![refused(RefusalReason::UnknownId)],
            dropped: vec![choice(Posture::Normal)],
            outcome: Outcome { predicted: -0.1, measured: Some(-0.2), verdict: TrialVerdict::Kept },
            cost: Some(OpportunityCost { minibatches: 7, demand_bytes: 9, ..OpportunityCost::default() }),
        }
    }

    #[test]
    fn entries_of_earlier_versions_are_read() {
        let mut json = serde_json::to_value(experience(1)).unwrap();
        let all = json.as_object_mut().unwrap();
        for key in ["source", "options", "refusals", "dropped", "cost"] {
            all.remove(key).unwrap();
        }
        let former: Experience = serde_json::from_value(json).unwrap();
        assert_eq!(former.directive, experience(1).directive);
        assert!(former.options.shown.is_empty() && former.refusals.is_empty() && former.cost.is_none());
    }

    #[test]
    fn a_line_of_fine_tuning_data_has_question_answer_and_reward() {
        let mut one = experience(7);
        one.state.compute = serde_json::from_value(json!([{
            "node": 0, "gpu_use": null, "wait_share": 0.5, "hit_rate": 0.5, "drift": 0.0, "prefetch_share": 0.0,
            "cache_free": 0.0, "ready": 0, "waiting": [], "next": [], "wants": [], "jobs": [],
        }]))
        .unwrap();
        let line = one.chat();
        assert!(line["messages"][0]["content"].as_str().unwrap().starts_with("T7:"));
        let answer: serde_json::Value =
            serde_json::from_str(line["messages"][1]["content"].as_str().unwrap()).unwrap();
        assert_eq!(answer["actions"][0]["compute"], "C0");
        assert!((line["reward"].as_f64().unwrap() - 0.2).abs() < 1e-6);
    }
}
