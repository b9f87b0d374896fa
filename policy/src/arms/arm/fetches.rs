//! The fetches of one minibatch as they grow: one a link.

use super::budget::Source;
use crate::links::LinkId;
use crate::step::{Admission, Fetch, Origin, Step};
use rudder_graph::Class;

pub(super) struct Fetches {
    class: Class,
    origin: Origin,
    by_link: Vec<Option<Fetch>>,
}

impl Fetches {
    pub fn new(links: usize, class: Class, origin: Origin) -> Self {
        Fetches { class, origin, by_link: (0..links).map(|_| None).collect() }
    }

    #[inline]
    pub fn add(&mut self, source: Source, admission: Admission) {
        let Source { link, id: LinkId { node, staged }, generation } = source;
        let (class, origin) = (self.class, self.origin);
        let new = || Fetch { node, staged, generation, class, origin, admissions: vec![] };
        self.by_link[link].get_or_insert_with(new).admissions.push(admission);
    }

    /// Appends them to a plan.
    pub fn finish(self, steps: &mut Vec<Step>) {
        steps.extend(self.by_link.into_iter().flatten().map(Step::Fetch));
    }
}
