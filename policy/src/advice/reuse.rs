//! Reuse of a directive in a similar state, without a call.

use super::directive::Directive;

/// Directives remembered.
const ENTRIES_MAX: usize = 64;

/// A directive and the state that it was for.
#[derive(Clone, Debug)]
struct Entry {
    /// Of length one.
    direction: Vec<f32>,
    directive: Directive,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct DirectiveCache {
    /// Cosine similarity of two metric vectors from which on their states count as alike.
    threshold: f32,
    topology: u64,
    /// Oldest first.
    entries: Vec<Entry>,
}

/// From which similarity on states are alike, where nothing else is configured.
pub const THRESHOLD_DEFAULT: f32 = 0.98;

impl DirectiveCache {
    #[must_use]
    pub fn new(threshold: f32) -> Self {
        DirectiveCache { threshold, topology: 0, entries: vec![] }
    }

    /// Says which cluster the following states are of: a digest of its nodes, links and who is up. Another one
    /// forgets everything.
    pub fn set_topology(&mut self, digest: u64) {
        if self.topology != digest {
            self.topology = digest;
            self.entries.clear();
        }
    }

    /// The directive of the most similar state, if one is similar enough.
    #[must_use]
    pub fn find(&self, metrics: &[f32]) -> Option<&Directive> {
        let direction = direction(metrics)?;
        let similar = |entry: &Entry| {
            let same = entry.direction.len() == direction.len();
            same.then(|| entry.direction.iter().zip(&direction).map(|(a, b)| a * b).sum::<f32>())
        };
        let best = self.entries.iter().filter_map(|entry| Some((similar(entry)?, entry)));
        let (similarity, entry) = best.max_by(|a, b| a.0.total_cmp(&b.0))?;
        (similarity >= self.threshold).then_some(&entry.directive)
    }

    pub fn insert(&mut self, metrics: &[f32], directive: Directive) {
        let Some(direction) = direction(metrics) else { return };
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(Entry { direction, directive });
    }

    /// A directive that did harm is not used again.
    pub fn forget(&mut self, directive: &Directive) {
        self.entries.retain(|entry| entry.directive != *directive);
    }
}

/// The vector of length one; `None` where there is none.
fn direction(metrics: &[f32]) -> Option<Vec<f32>> {
    let length = metrics.iter().map(|m| m * m).sum::<f32>().sqrt();
    (length.is_finite() && length > 1e-6).then(|| metrics.iter().map(|m| m / length).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::directive::{Action, Change};
    use crate::parameters::Posture;
    use proptest::prelude::*;
    use rudder_topology::NodeId;

    fn directive(node: u16) -> Directive {
        let change = Change::Posture(Posture::DemandFirst);
        Directive { actions: vec![Action { compute: NodeId(node), change, ttl_s: 60 }] }
    }

    #[test]
    fn a_similar_state_finds_it_and_another_does_not() {
        let mut cache = DirectiveCache::new(0.98);
        cache.insert(&[0.9, 0.1, 0.5], directive(0));
        cache.insert(&[0.1, 0.9, 0.5], directive(1));
        assert_eq!(cache.find(&[0.85, 0.12, 0.5]), Some(&directive(0)));
        assert_eq!(cache.find(&[0.1, 0.85, 0.5]), Some(&directive(1)));
        assert_eq!(cache.find(&[0.5, 0.5, 0.0]), None);
        assert_eq!(cache.find(&[0.9, 0.1]), None, "another length is another cluster");
        assert_eq!(cache.find(&[0.0; 3]), None);
    }

    #[test]
    fn another_topology_and_harm_forget() {
        let mut cache = DirectiveCache::new(0.98);
        cache.set_topology(1);
        cache.insert(&[1.0, 0.0], directive(0));
        cache.set_topology(1);
        assert!(cache.find(&[1.0, 0.0]).is_some());
        cache.forget(&directive(0));
        assert!(cache.find(&[1.0, 0.0]).is_none());
        cache.insert(&[1.0, 0.0], directive(0));
        cache.set_topology(2);
        assert!(cache.find(&[1.0, 0.0]).is_none());
    }

    proptest! {
        #[test]
        fn any_metrics_are_survived_and_memory_is_bounded(
            states in prop::collection::vec(prop::collection::vec(prop::num::f32::ANY, 0..4), 0..100),
        ) {
            let mut cache = DirectiveCache::new(0.9);
            for metrics in &states {
                let _ = cache.find(metrics);
                cache.insert(metrics, directive(0));
                prop_assert!(cache.entries.len() <= ENTRIES_MAX);
            }
        }
    }
}
