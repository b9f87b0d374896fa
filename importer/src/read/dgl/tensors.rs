//! Named tensors, as `dgl.data.utils.save_tensors` writes them.

use super::binary::Stream;
use crate::error::ReadError;
use crate::read::array::Array;
use std::path::Path;

const MAGIC: u64 = 0xdd5a_9fbe_3fa2_443f;

/// The tensors of a file; their data stay on the disk.
pub(super) fn open(path: &Path) -> Result<Vec<(String, Array)>, ReadError> {
    let mut stream = Stream::open(path)?;
    stream.magic(MAGIC, "a file of tensors")?;
    let count = stream.count("the number of tensors")?;
    // The same number again: a list of pairs follows.
    if stream.count("the number of tensors")? != count {
        return Err(stream.refuse("two numbers of tensors that differ: write it again with DGL"));
    }
    named(&mut stream, count)
}

/// Names and tensors that follow each other.
pub(super) fn named(stream: &mut Stream, count: u64) -> Result<Vec<(String, Array)>, ReadError> {
    (0..count)
        .map(|_| {
            let name = stream.name()?;
            let tensor = stream.tensor(&name)?;
            Ok((name, tensor))
        })
        .collect()
}
