//! Readers of other formats. Each gives a [`Source`].

pub(crate) mod archive;
pub(crate) mod array;
pub(crate) mod dgl;
pub(crate) mod edge_list;
pub(crate) mod edges;
pub(crate) mod folder;
pub(crate) mod generate;
pub(crate) mod ogb;
pub(crate) mod placement;
pub(crate) mod rows;
pub(crate) mod scratch;
pub(crate) mod text;
pub(crate) mod text_rows;
pub(crate) mod vertices;

use crate::error::{ImportError, Place, ReadError};
use crate::options::{ImportOptions, Input};
use crate::progress::Run;
use crate::source::Source;
use scratch::Scratch;
use std::fs::File;
use std::path::Path;

/// Opens whatever the options name.
pub(crate) fn open(
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ImportError> {
    match &options.input {
        Input::Generate(text) => Ok(generate::open(text)?),
        Input::Path(path) => open_path(path, options, scratch, run).map_err(ImportError::from),
    }
}

fn open_path(
    path: &Path,
    options: &ImportOptions,
    scratch: &mut Scratch,
    run: &mut Run<'_>,
) -> Result<Source, ReadError> {
    if let Some(root) = ogb::root(path) {
        return ogb::open(&root, options, scratch, run);
    }
    match dgl::open(path, options, scratch, run)? {
        Some(source) => Ok(source),
        None => folder::open(path, options, scratch, run),
    }
}

/// Opens a regular file. Anything else, such as a pipe, could block for ever or not be read twice.
pub(crate) fn open_file(path: &Path, place: &Place) -> Result<File, ReadError> {
    let metadata = std::fs::metadata(path).map_err(ReadError::io(place))?;
    if !metadata.is_file() {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is not a regular file");
        return Err(ReadError::Io { place: place.clone(), source });
    }
    File::open(path).map_err(ReadError::io(place))
}
