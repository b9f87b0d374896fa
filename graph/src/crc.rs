//! CRC32C of blocks, and the table of them beside each feature file.
//!
//! `parts/<p>/<table>.crc.npy` holds a little-endian u32 for each block of the part, in the order of the blocks.
//! A block's checksum covers the rows that exist: a part's short last block is not padded.

use rudder_topology::{PartId, TableId};

/// CRC32C (Castagnoli) of a block's bytes.
#[must_use]
pub fn block_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC32C of bytes that follow others whose checksum is `before`; `before` is 0 at the start.
#[must_use]
pub fn extend_checksum(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

/// The checksums of a feature file that is `block_bytes` a block, as they stand in the table's data.
pub fn checksums(features: &[u8], block_bytes: usize) -> impl Iterator<Item = u32> + '_ {
    features.chunks(block_bytes).map(block_checksum)
}

/// A checksum table: the data of its `.npy` file.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumTable<'a> {
    data: &'a [u8],
}

/// A block whose bytes are not what was imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "block {index} of part {part}, table {table}, is corrupt: CRC32C {found:08x} instead of {expected:08x}"
)]
pub struct CorruptBlock {
    pub table: TableId,
    pub part: PartId,
    /// Block within the part's feature file.
    pub index: u32,
    pub expected: u32,
    pub found: u32,
}

impl<'a> ChecksumTable<'a> {
    /// A table over little-endian u32. Bytes beyond the last whole entry are not looked at.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        ChecksumTable { data }
    }

    #[must_use]
    pub fn blocks(&self) -> usize {
        self.data.len() / 4
    }

    /// The checksum of the part's block `index`.
    #[must_use]
    pub fn expected(&self, index: u32) -> Option<u32> {
        let start = (index as usize).checked_mul(4)?;
        let bytes = self.data.get(start..start.checked_add(4)?)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_castagnoli() {
        // The check value of CRC-32/ISCSI.
        assert_eq!(block_checksum(b"123456789"), 0xE306_9283);
        assert_eq!(extend_checksum(block_checksum(b"12345"), b"6789"), 0xE306_9283);
    }

    #[test]
    fn tables_follow_the_blocks() {
        let features = [1_u8, 2, 3, 4, 5, 6, 7];
        let data: Vec<u8> = checksums(&features, 3).flat_map(u32::to_le_bytes).collect();
        let table = ChecksumTable::new(&data);
        assert_eq!(table.blocks(), 3);
        assert_eq!(table.expected(1), Some(block_checksum(&[4, 5, 6])));
        assert_eq!(table.expected(2), Some(block_checksum(&[7])));
        assert_eq!(table.expected(3), None);
        assert_eq!(table.expected(u32::MAX), None);
        assert_eq!(ChecksumTable::new(&data[..5]).expected(1), None);
    }
}
