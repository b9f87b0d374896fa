//! Secrets: read when they are used, never kept in a value that can be printed.

use crate::backend::BackendError;
use rudder_topology::SecretPlace;

/// A key's file is a line.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The secret of a place.
pub(crate) fn read(place: &SecretPlace) -> Result<String, BackendError> {
    let secret = match place {
        SecretPlace::File(path) => {
            use std::io::Read;
            let fail = |error: std::io::Error| BackendError::File {
                what: "the file that `key_file` names",
                reason: error.to_string(),
            };
            let mut text = String::new();
            let file = std::fs::File::open(path).map_err(fail)?;
            file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
            text.lines().next().unwrap_or_default().trim().to_owned()
        }
        SecretPlace::Environment(name) => std::env::var(name).map_err(|_| BackendError::File {
            what: "the environment variable that `key_environment` names",
            reason: "it is not set, or not text".to_owned(),
        })?,
    };
    Ok(secret)
}
