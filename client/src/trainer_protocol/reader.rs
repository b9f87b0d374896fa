//! Reads a frame's fields; every count is checked against what is left before anything is allocated.

use super::{FrameError, ROWS_MAX, Refusal, TABLES_MAX, TEXT_BYTES_MAX};
use rudder_topology::TableId;

pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        Reader { rest: frame }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(FrameError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.take::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(super) fn count16(&mut self, max: usize) -> Result<usize, FrameError> {
        let count = usize::from(self.u16()?);
        if count > max { Err(FrameError::Count(count as u64)) } else { Ok(count) }
    }

    pub(super) fn text(&mut self) -> Result<String, FrameError> {
        let length = self.count16(TEXT_BYTES_MAX)?;
        if length > self.rest.len() {
            return Err(FrameError::Truncated);
        }
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        String::from_utf8(text.to_vec()).map_err(|_| FrameError::Text)
    }

    /// Per table a list of items of `N` bytes each.
    pub(super) fn tables<T, const N: usize>(
        &mut self,
        item: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<(TableId, Vec<T>)>, FrameError> {
        let tables = self.count16(TABLES_MAX)?;
        let mut total = 0_usize;
        let mut out = Vec::with_capacity(tables);
        for _ in 0..tables {
            let table = TableId(self.u16()?);
            let count = self.u32()? as usize;
            total = total.saturating_add(count);
            if total > ROWS_MAX {
                return Err(FrameError::Count(total as u64));
            }
            let (items, rest) = self.rest.split_at_checked(count * N).ok_or(FrameError::Truncated)?;
            self.rest = rest;
            out.push((table, items.as_chunks().0.iter().map(|&bytes| item(bytes)).collect()));
        }
        Ok(out)
    }

    pub(super) fn refusal(&mut self) -> Result<Refusal, FrameError> {
        let (code, a, b) = (self.u32()?, self.u32()?, self.u32()?);
        Ok(match code {
            0 => Refusal::Protocol { node: a, trainer: b },
            1 => Refusal::UnknownDataset,
            2 => Refusal::RankInUse,
            3 => Refusal::UnknownRow(u16::try_from(a).map_err(|_| FrameError::Count(u64::from(a)))?),
            4 => Refusal::StaleMinibatch,
            5 => Refusal::NotAnnounced,
            6 => Refusal::NoCredit,
            7 => Refusal::Corrupt,
            8 => Refusal::StorageRefused,
            9 => Refusal::Stopping,
            10 => Refusal::OtherVersion,
            code => return Err(FrameError::Count(u64::from(code))),
        })
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FrameError::Trailing(self.rest.len())) }
    }
}
