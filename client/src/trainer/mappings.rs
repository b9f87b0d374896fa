//! What the node passed, mapped read-only.

use crate::gather::{GatherError, gather_into};
use crate::location::{LOCAL_MAPPINGS, Location, PRIVATE_MAPPING};
use crate::trainer_protocol::MappingSpec;
use memmap2::Mmap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Mapped cache chunks and co-located feature files. A row of a gather may lie in another one than the row before it,
/// so finding one has to be no more than an index.
#[derive(Clone, Debug, Default)]
pub struct Mappings {
    chunks: Vec<Option<Arc<Mmap>>>,
    /// From [`LOCAL_MAPPINGS`] on.
    local: Vec<Option<Arc<Mmap>>>,
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
            let (maps, at) = match spec.index.checked_sub(LOCAL_MAPPINGS) {
                Some(at) => (&mut self.local, usize::from(at)),
                None => (&mut self.chunks, usize::from(spec.index)),
            };
            if maps.len() <= at {
                maps.resize(at + 1, None);
            }
            maps[at] = Some(Arc::new(map));
        }
        Ok(())
    }

    pub(super) fn bytes<'a>(&'a self, private: &'a [u8], mapping: u16) -> &'a [u8] {
        if mapping == PRIVATE_MAPPING {
            return private;
        }
        let map = match mapping.checked_sub(LOCAL_MAPPINGS) {
            Some(at) => self.local.get(usize::from(at)),
            None => self.chunks.get(usize::from(mapping)),
        };
        map.and_then(Option::as_ref).map_or(&[], |map| &map[..])
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
