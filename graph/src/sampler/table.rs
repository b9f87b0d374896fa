//! Vertex -> its place in first-seen order: an open-addressed table that is cleared by what was put in.

use rudder_topology::VertexId;

/// Free entries have this place; lists are shorter, for vertex ids are 32 bits and the last is never used.
const FREE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct FirstSeen {
    /// (vertex, place); a power of two of them, at most half in use.
    entries: Vec<(u32, u32)>,
}

impl FirstSeen {
    /// Forgets `vertices`, which must be all that was seen.
    pub(super) fn clear(&mut self, vertices: &[VertexId]) {
        // Touching each entry in use is quicker than a sweep only where few are in use.
        if vertices.len() * 8 < self.entries.len() {
            // In the reverse order of insertion: a probe for a vertex passes only entries that were there before
            // it, and those are still there.
            for &vertex in vertices.iter().rev() {
                let slot = self.slot(vertex);
                self.entries[slot].1 = FREE;
            }
        } else {
            self.entries.fill((0, FREE));
        }
    }

    /// The place of a vertex in `vertices`, appended if it is new.
    pub(super) fn local(&mut self, vertex: VertexId, vertices: &mut Vec<VertexId>) -> u32 {
        if (vertices.len() + 1) * 2 > self.entries.len() {
            self.grow(vertices);
        }
        let slot = self.slot(vertex);
        let entry = &mut self.entries[slot];
        if entry.1 == FREE {
            *entry = (vertex.0, vertices.len() as u32);
            vertices.push(vertex);
        }
        entry.1
    }

    /// The entry of a vertex, or the free one where it belongs.
    fn slot(&self, vertex: VertexId) -> usize {
        let mask = self.entries.len() - 1;
        let hash = u64::from(vertex.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut slot = (hash >> 32) as usize & mask;
        while self.entries[slot].1 != FREE && self.entries[slot].0 != vertex.0 {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self, vertices: &[VertexId]) {
        let entries = (self.entries.len() * 2).max(1024);
        self.entries.clear();
        self.entries.resize(entries, (0, FREE));
        for (place, &vertex) in vertices.iter().enumerate() {
            let slot = self.slot(vertex);
            self.entries[slot] = (vertex.0, place as u32);
        }
    }
}
