//! The experience store: what was known, what was done, what was expected and what came of it, in an embedded database
//! (redb: every commit is whole after a kill). Bounded: the oldest entries go.

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use rudder_policy::advice::directive::Directive;
use rudder_policy::advice::evaluate::{FEATURES, features};
use rudder_policy::advice::labels::Labels;
use rudder_policy::advice::report::Reporter;
use rudder_policy::advice::state::ClusterState;
use rudder_policy::advice::trial::Outcome;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Entries kept; the oldest go first. At some kilobytes an entry, a file of some tens of megabytes.
pub const ENTRIES_MAX: u64 = 10_000;

const ENTRIES: TableDefinition<u64, &[u8]> = TableDefinition::new("experience");

/// One judged directive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experience {
    /// Who answered, as the back end calls itself, or `rules`.
    pub backend: String,
    /// The state that was asked about.
    pub state: ClusterState,
    pub directive: Directive,
    pub outcome: Outcome,
}

/// Why the store did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ExperienceError {
    #[error("{}: the experience store cannot be opened: {reason}; name a file that a scheduler node wrote, or a new one in an existing folder", path.display())]
    Open { path: PathBuf, reason: String },
    #[error("{}: {reason}", path.display())]
    Database { path: PathBuf, reason: String },
    #[error("{}: entry {number} is damaged: {reason}", path.display())]
    Entry { path: PathBuf, number: u64, reason: String },
}

/// An open store. One process at a time.
pub struct Store {
    path: PathBuf,
    database: Database,
}

impl Store {
    /// Opens a store, or makes one.
    pub fn open(path: &Path) -> Result<Store, ExperienceError> {
        Store::of(path, Database::create(path))
    }

    /// Opens a store that is there.
    pub fn open_existing(path: &Path) -> Result<Store, ExperienceError> {
        Store::of(path, Database::open(path))
    }

    fn of(path: &Path, opened: Result<Database, redb::DatabaseError>) -> Result<Store, ExperienceError> {
        let path = path.to_owned();
        match opened {
            Ok(database) => Ok(Store { path, database }),
            Err(error) => Err(ExperienceError::Open { path, reason: error.to_string() }),
        }
    }

    fn fail(&self, error: impl std::fmt::Display) -> ExperienceError {
        ExperienceError::Database { path: self.path.clone(), reason: error.to_string() }
    }

    /// Adds an entry; it is on disk when this returns.
    pub fn add(&self, experience: &Experience) -> Result<(), ExperienceError> {
        self.add_bounded(experience, ENTRIES_MAX)
    }

    fn add_bounded(&self, experience: &Experience, entries_max: u64) -> Result<(), ExperienceError> {
        let bytes = serde_json::to_vec(experience).map_err(|error| self.fail(error))?;
        let write = self.database.begin_write().map_err(|error| self.fail(error))?;
        {
            let mut table = write.open_table(ENTRIES).map_err(|error| self.fail(error))?;
            let last = table.last().map_err(|error| self.fail(error))?.map(|(number, _)| number.value());
            let next = last.map_or(0, |last| last + 1);
            table.insert(next, bytes.as_slice()).map_err(|error| self.fail(error))?;
            while table.len().map_err(|error| self.fail(error))? > entries_max {
                table.pop_first().map_err(|error| self.fail(error))?;
            }
        }
        write.commit().map_err(|error| self.fail(error))
    }

    /// All entries, oldest first, with their numbers.
    pub fn entries(&self) -> Result<Vec<(u64, Experience)>, ExperienceError> {
        let read = self.database.begin_read().map_err(|error| self.fail(error))?;
        let table = match read.open_table(ENTRIES) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(vec![]),
            Err(error) => return Err(self.fail(error)),
        };
        let mut entries = vec![];
        for entry in table.iter().map_err(|error| self.fail(error))? {
            let (number, bytes) = entry.map_err(|error| self.fail(error))?;
            let number = number.value();
            let experience = serde_json::from_slice(bytes.value()).map_err(|error| {
                ExperienceError::Entry { path: self.path.clone(), number, reason: error.to_string() }
            })?;
            entries.push((number, experience));
        }
        Ok(entries)
    }
}

impl Experience {
    /// The change of the wait share for the better; `None` where nothing was measured.
    #[must_use]
    pub fn reward(&self) -> Option<f32> {
        self.outcome.measured.map(|change| -change)
    }

    /// The sum of its actions' features: what the evaluator learns the measured change from.
    #[must_use]
    pub fn features(&self) -> [f32; FEATURES] {
        let mut sum = [0.0; FEATURES];
        for action in &self.directive.actions {
            for (into, value) in sum.iter_mut().zip(features(action, &self.state)) {
                *into += value;
            }
        }
        sum
    }

    /// A line of chat fine-tuning data: the question, the answer in the form that is asked for, and the reward. Nodes
    /// have the labels of their order in the state.
    #[must_use]
    pub fn chat(&self) -> serde_json::Value {
        let compute = self.state.compute.iter().map(|compute| compute.node).collect();
        let storage = self.state.storage.iter().map(|storage| storage.node).collect();
        let labels = Labels::new(compute, storage);
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
mod tests {
    use super::*;
    use rudder_policy::advice::directive::{Action, Change};
    use rudder_policy::advice::trial::TrialVerdict;
    use rudder_policy::parameters::Posture;
    use rudder_topology::NodeId;

    fn experience(minibatch: u64) -> Experience {
        let change = Change::Posture(Posture::DemandOnly);
        Experience {
            backend: "rules".to_owned(),
            state: ClusterState { minibatch, ..ClusterState::default() },
            directive: Directive { actions: vec![Action { compute: NodeId(0), change, ttl_s: 60 }] },
            outcome: Outcome { predicted: -0.1, measured: Some(-0.2), verdict: TrialVerdict::Kept },
        }
    }

    fn minibatches(store: &Store) -> Vec<(u64, u64)> {
        store.entries().unwrap().into_iter().map(|(number, e)| (number, e.state.minibatch)).collect()
    }

    #[test]
    fn entries_survive_and_the_oldest_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        let store = Store::open(&path).unwrap();
        assert_eq!(minibatches(&store), []);
        for minibatch in 0..5 {
            store.add_bounded(&experience(minibatch), 3).unwrap();
        }
        drop(store);
        let store = Store::open_existing(&path).unwrap();
        assert_eq!(minibatches(&store), [(2, 2), (3, 3), (4, 4)]);
        assert_eq!(store.entries().unwrap()[0].1, experience(2));
    }

    #[test]
    fn what_is_no_store_is_said_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        assert!(Store::open_existing(&path).err().unwrap().to_string().contains("e.redb"));
        std::fs::write(&path, "not a database").unwrap();
        assert!(Store::open(&path).err().unwrap().to_string().contains("cannot be opened"));
    }

    /// A copy of the file at any moment is what a kill leaves behind: it opens, with every entry that was added.
    #[test]
    fn what_a_kill_leaves_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.redb");
        let store = Store::open(&path).unwrap();
        for minibatch in 0..3 {
            store.add(&experience(minibatch)).unwrap();
            let left = folder.path().join("left.redb");
            std::fs::copy(&path, &left).unwrap();
            assert_eq!(minibatches(&Store::open_existing(&left).unwrap()).len() as u64, minibatch + 1);
        }
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
