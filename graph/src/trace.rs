//! A digest of what was asked for, so that a trainer and whoever predicts it can tell that they speak of the
//! same trace.

use rudder_topology::{MinibatchId, TableId};

mod sampled;

pub use sampled::{Trace, TraceSpec};

/// Part of every digest: raised when samplers, shuffles or this encoding change.
pub const TRACE_VERSION: u32 = 1;

/// BLAKE3 over requests in order. Two traces have the same digest only if they name the same rows of the same
/// tables in the same minibatches, in the same order.
#[derive(Clone, Debug)]
pub struct TraceDigest {
    hasher: blake3::Hasher,
    scratch: Vec<u8>,
}

impl Default for TraceDigest {
    fn default() -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"rudder trace");
        hasher.update(&TRACE_VERSION.to_le_bytes());
        TraceDigest { hasher, scratch: Vec::new() }
    }
}

impl TraceDigest {
    /// Adds the rows that a minibatch asks of a table.
    pub fn request<R: Copy + Into<u64>>(&mut self, minibatch: MinibatchId, table: TableId, rows: &[R]) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&minibatch.0.to_le_bytes());
        self.scratch.extend_from_slice(&table.0.to_le_bytes());
        self.scratch.extend_from_slice(&(rows.len() as u64).to_le_bytes());
        for &row in rows {
            self.scratch.extend_from_slice(&row.into().to_le_bytes());
        }
        self.hasher.update(&self.scratch);
    }

    /// The digest so far; more may be added after it.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        *self.hasher.finalize().as_bytes()
    }

    /// [`Self::digest`] in hex.
    #[must_use]
    pub fn hex(&self) -> String {
        self.hasher.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(requests: &[(u64, u16, &[u32])]) -> [u8; 32] {
        let mut digest = TraceDigest::default();
        for &(minibatch, table, rows) in requests {
            digest.request(MinibatchId(minibatch), TableId(table), rows);
        }
        digest.digest()
    }

    #[test]
    fn every_difference_shows() {
        let traces: [&[(u64, u16, &[u32])]; 8] = [
            &[],
            &[(0, 0, &[])],
            &[(0, 0, &[1, 2])],
            &[(0, 0, &[2, 1])],
            &[(0, 1, &[1, 2])],
            &[(1, 0, &[1, 2])],
            &[(0, 0, &[1]), (0, 0, &[2])],
            &[(0, 0, &[1, 2]), (0, 0, &[])],
        ];
        let distinct: std::collections::HashSet<_> = traces.iter().map(|trace| digest(trace)).collect();
        assert_eq!(distinct.len(), traces.len());
        assert_eq!(digest(traces[2]), digest(traces[2]));
    }

    #[test]
    fn the_width_of_rows_does_not_matter() {
        let (mut narrow, mut wide) = (TraceDigest::default(), TraceDigest::default());
        narrow.request(MinibatchId(1), TableId(0), &[7_u32]);
        wide.request(MinibatchId(1), TableId(0), &[7_u64]);
        assert_eq!(narrow.hex(), wide.hex());
    }
}
