//! The HTTP client of all back ends: bounded in time and bytes.

use crate::backend::BackendError;
use std::time::Duration;

/// A server on the same machine or network accepts within this.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Bytes of a response that are read.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// A client whose every request ends within `time_max`. No proxy of the environment: the address in the topology file
/// is the address. No redirect: it could lead a key elsewhere.
pub(crate) fn client(time_max: Duration) -> Result<reqwest::Client, BackendError> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN.min(time_max))
        .timeout(time_max)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| BackendError::Unreachable { reason: error.without_url().to_string() })
}

/// What a failed request means. The address is left out: it may hold what nobody should read.
pub(crate) fn failure(error: reqwest::Error, within: Duration) -> BackendError {
    if error.is_timeout() && !error.is_connect() {
        return BackendError::Deadline { within };
    }
    let (reached, reason) = (!error.is_connect() && !error.is_builder(), cause(error));
    if reached { BackendError::Cut { reason } } else { BackendError::Unreachable { reason } }
}

/// The innermost cause says most: "connection refused".
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string().chars().take(120).collect()
}

/// The body of a successful response, as far as it is allowed to go.
pub(crate) async fn body(mut response: reqwest::Response, within: Duration) -> Result<Vec<u8>, BackendError> {
    let status = response.status();
    if !status.is_success() {
        return Err(BackendError::Status { status: status.as_u16() });
    }
    let mut bytes = vec![];
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(error, within))? {
        if bytes.len() + chunk.len() > RESPONSE_BYTES_MAX {
            return Err(BackendError::TooLong { bytes_max: RESPONSE_BYTES_MAX });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}
