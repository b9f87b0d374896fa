//! The HTTP client of all back ends: bounded in time and bytes; with TLS where the address says `https`.

use crate::backend::BackendError;
use rudder_topology::Advisor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A server on the same machine or network accepts within this.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Bytes of a response that are read.
pub(crate) const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// A client whose every request to `url` ends within the deadline. No proxy of the environment: the address in the
/// topology file is the address. No redirect: it could lead a key elsewhere.
pub(crate) fn client(advisor: &Advisor, url: &str) -> Result<reqwest::Client, BackendError> {
    let time_max = Duration::from_nanos(advisor.deadline.0);
    reqwest::Client::builder()
        .use_preconfigured_tls(tls(url, advisor.authority.as_deref())?)
        .connect_timeout(CONNECT_WITHIN.min(time_max))
        .timeout(time_max)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| BackendError::Unreachable { reason: error.without_url().to_string() })
}

/// Trusts the authority that is named, else those that the system trusts; nobody where nothing is encrypted.
fn tls(url: &str, authority: Option<&Path>) -> Result<ClientConfig, BackendError> {
    let mut roots = RootCertStore::empty();
    match authority {
        _ if !url.starts_with("https://") => {}
        Some(path) => {
            let fail =
                |reason: String| BackendError::File { what: "the file that `authority` names", reason };
            let fail = |reason: String| fail(format!("{}: {reason}", path.display()));
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| fail(error.to_string()))?;
                roots.add(certificate).map_err(|error| fail(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(fail("it holds no certificate in PEM form".to_owned()));
            }
        }
        None => {
            // What cannot be read is not trusted; a server that needs it is refused, and the reason says so.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(|error| BackendError::Unreachable { reason: format!("no TLS here: {error}") })?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
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
