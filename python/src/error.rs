//! Errors as Python exceptions. The classes are Python's (`rudder/errors.py`), so that they can be documented and
//! subclassed there.

use pyo3::prelude::*;
use rudder_client::trainer::ClientError;
use rudder_client::trainer_protocol::Refusal;

/// An exception of `rudder.errors`.
pub(crate) fn raise(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let made = || py.import("rudder.errors")?.getattr(class)?.call1((message,));
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a client's error. Its text says what to do. Where a signal ended a wait early, what its handler raises
/// is the cause, and the error only its consequence.
pub(crate) fn of_client(py: Python<'_>, error: &ClientError) -> PyErr {
    if let Err(interrupt) = py.check_signals() {
        return interrupt;
    }
    let class = match error {
        ClientError::Connect { .. } | ClientError::Broken { .. } => "NodeUnreachable",
        ClientError::Refused { .. } | ClientError::Protocol { .. } => "NodeRefused",
        ClientError::Failed { refusal: Refusal::UnknownRow(_), .. } => "RowError",
        ClientError::Failed { .. } => "MinibatchFailed",
        ClientError::NoCredit { .. } => "NoCredit",
        ClientError::TimeOut { .. } => "NotReadyInTime",
        ClientError::TooManyRows(_) | ClientError::Table(_) | ClientError::Gather { .. } => "RowError",
        ClientError::NotAnnounced(_) | ClientError::Announced(_) => "MinibatchError",
        ClientError::Location(_) => "MinibatchFailed",
        ClientError::Interrupted => "RudderError",
    };
    raise(py, class, &error.to_string())
}
