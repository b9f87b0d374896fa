//! The native half of the Python package: buffers in and out, waits that let Python's signals through, and nothing
//! that decides. Its interface is `rudder/_native.pyi`; users see the typed package on top of it.
//!
//! Reading order: error, buffer, view, ready, gate, connection, sampling, manifest, writing.

// Python's buffers are raw memory: this crate is the border.
#![allow(unsafe_code)]

mod buffer;
mod connection;
mod error;
mod gate;
mod manifest;
mod ready;
mod sampling;
mod view;
mod writing;

/// `rudder._native`
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::buffer::{Int64s, PinnedBytes};
    #[pymodule_export]
    use crate::connection::Connection;
    #[pymodule_export]
    use crate::manifest::DatasetManifest;
    #[pymodule_export]
    use crate::ready::ReadyRows;
    #[pymodule_export]
    use crate::sampling::{GraphSampler, RelationSampler, RequestDigest, Seeds};
    #[pymodule_export]
    use crate::writing::{block_checksums, file_digest, sealed_manifest};
}
