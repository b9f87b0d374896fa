//! What the node passed, mapped read-only.

use super::MappingTable;
use crate::gather::{GatherError, gather_into};
use crate::location::{Location, PRIVATE_MAPPING};
use crate::trainer_protocol::MappingSpec;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Mapped cache chunks and co-located feature files by mapping index.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    table: MappingTable,
}

impl Mappings {
    #[allow(unsafe_code)]
    pub(super) fn add(&mut self, specs: &[MappingSpec], fds: Vec<OwnedFd>) -> io::Result<()> {
        let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
        if specs.len() != fds.len() {
            return Err(invalid("the node passed another number of descriptors than it named"));
        }
        for (spec, fd) in specs.iter().zip(fds) {
            let size = rustix::fs::fstat(&fd)?.st_size;
            if spec.index == PRIVATE_MAPPING || spec.bytes > size.try_into().unwrap_or(0) {
                return Err(invalid("the node named more bytes than its descriptor has"));
            }
            if spec.bytes == 0 {
                continue;
            }
            let length = usize::try_from(spec.bytes).map_err(|_| invalid("a mapping is too large"))?;
            // SAFETY: the mapping is read-only; cache chunks are sealed against shrinking, and slots change only
            // while no minibatch that names them is ready. Feature files are never changed while served.
            let map = unsafe { memmap2::MmapOptions::new().len(length).map(&fd)? };
            self.table.insert(spec.index, Arc::new(map));
        }
        Ok(())
    }

    pub(super) fn bytes<'a>(&'a self, private: &'a [u8], mapping: u16) -> &'a [u8] {
        if mapping == PRIVATE_MAPPING {
            private
        } else {
            self.table.get(&mapping).map_or(&[], |map| &map[..])
        }
    }

    pub(super) fn row<'a>(&'a self, private: &'a [u8], at: Location, bytes: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(at.offset()).ok()?;
        self.bytes(private, at.mapping()).get(start..start.checked_add(bytes)?)
    }

    pub(super) fn gather(
        &self,
        private: &[u8],
        locations: &[Location],
        row_bytes: usize,
        to: &mut [u8],
    ) -> Result<(), GatherError> {
        gather_into(|mapping| self.bytes(private, mapping), locations, row_bytes, to)
    }
}
