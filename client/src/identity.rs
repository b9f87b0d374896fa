//! Who a process is: certificate and key from the keys directory, and the TLS configurations made of them.
//!
//! TLS 1.3 only, both ends show a certificate of the cluster's authority, nothing is resumed. A certificate names
//! its holder by exactly one DNS name: the node's name, or `operator`.

use rudder_topology::{NameError, NodeName};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operator's name in certificates; no node may have it.
pub const OPERATOR: &str = "operator";

/// Bytes of a PEM file at most.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Who a certificate says its holder is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeerName {
    Node(NodeName),
    Operator,
}

impl PeerName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            PeerName::Node(name) => name.as_str(),
            PeerName::Operator => OPERATOR,
        }
    }

    /// Reads a name as it stands in a certificate.
    pub fn parse(text: &str) -> Result<PeerName, NameError> {
        if text == OPERATOR { Ok(PeerName::Operator) } else { NodeName::new(text).map(PeerName::Node) }
    }
}

impl std::fmt::Display for PeerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot read {}: {source}; `rudder keys init` makes the keys of a topology", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("{} is over {PEM_BYTES_MAX} bytes", file.display())]
    TooLong { file: PathBuf },
    #[error("{what} is not PEM as expected: {source}")]
    Pem { what: &'static str, source: rustls_pki_types::pem::Error },
    #[error("{what} holds no certificate")]
    NoCertificate { what: &'static str },
    #[error("the certificate is of `{found}`, not of `{expected}`")]
    Name { expected: String, found: String },
    #[error(transparent)]
    PeerName(#[from] PeerNameError),
    #[error("certificate and key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the authority's certificate cannot be used: {0}")]
    Authority(#[from] rustls::server::VerifierBuilderError),
    #[error(
        "`{0}` cannot stand in a certificate: use letters, digits and single inner dashes, with one letter at least"
    )]
    Unusable(String),
}

/// Why a certificate names nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerNameError {
    #[error("the peer showed no certificate")]
    NoCertificate,
    #[error("the peer's certificate is malformed")]
    Malformed,
    #[error("a certificate must have exactly one DNS name, this one has {0}")]
    NamesCount(usize),
    #[error(transparent)]
    Name(#[from] NameError),
}

/// A process's identity within the cluster.
pub struct Identity {
    name: PeerName,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.name)
    }
}

fn read_pem(file: &Path) -> Result<Vec<u8>, IdentityError> {
    let failed = |source| IdentityError::Read { file: file.to_owned(), source };
    let bytes = std::fs::metadata(file).map_err(failed)?.len();
    if bytes > PEM_BYTES_MAX {
        return Err(IdentityError::TooLong { file: file.to_owned() });
    }
    std::fs::read(file).map_err(failed)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let list = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| IdentityError::Pem { what, source })?;
    if list.is_empty() { Err(IdentityError::NoCertificate { what }) } else { Ok(list) }
}

impl Identity {
    /// Reads `ca.pem`, `<name>.pem` and `<name>.key` from the keys directory.
    pub fn load(directory: &Path, name: &PeerName) -> Result<Identity, IdentityError> {
        let file = |end: &str| read_pem(&directory.join(end));
        let certificate = file(&format!("{name}.pem"))?;
        let key = file(&format!("{name}.key"))?;
        Identity::from_pem(name, &file("ca.pem")?, &certificate, &key)
    }

    /// The identity made of the three files' contents. The certificate must name `name`.
    pub fn from_pem(
        name: &PeerName,
        authority: &[u8],
        certificate: &[u8],
        key: &[u8],
    ) -> Result<Identity, IdentityError> {
        let mut roots = RootCertStore::empty();
        for root in certificates("the authority's file", authority)? {
            roots.add(root)?;
        }
        let chain = certificates("the certificate's file", certificate)?;
        let found = peer_name(&chain)?;
        if found != *name {
            return Err(IdentityError::Name { expected: name.to_string(), found: found.to_string() });
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|source| IdentityError::Pem { what: "the key's file", source })?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Ok(Identity { name: name.clone(), chain, key, roots: Arc::new(roots), provider })
    }

    #[must_use]
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// For accepting: asks for a certificate of the same authority, sends no session tickets.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, IdentityError> {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone()).build()?;
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        // A ticket would arrive after the handshake, where the data port has left TLS already.
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// For dialing: shows the certificate, resumes nothing.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, IdentityError> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }
}

/// The name under which TLS looks for a peer. Fails for the few node names that no certificate can carry.
pub fn server_name(name: &PeerName) -> Result<ServerName<'static>, IdentityError> {
    ServerName::try_from(name.as_str().to_owned()).map_err(|_| IdentityError::Unusable(name.to_string()))
}

/// Who a verified chain says the peer is.
pub fn peer_name(chain: &[CertificateDer<'_>]) -> Result<PeerName, PeerNameError> {
    let leaf = chain.first().ok_or(PeerNameError::NoCertificate)?;
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|_| PeerNameError::Malformed)?;
    let names: Vec<&str> = leaf.valid_dns_names().collect();
    match names[..] {
        [name] => Ok(PeerName::parse(name)?),
        _ => Err(PeerNameError::NamesCount(names.len())),
    }
}
