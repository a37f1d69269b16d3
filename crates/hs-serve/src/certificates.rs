//! The certificates of a server, read from files: of NBD and of HTTP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

/// Names of the files, as nbdkit and QEMU have them.
const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";

/// Why TLS cannot be offered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file with certificates, or a key, cannot be read or holds none.
    #[error("{} is not usable for TLS: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The authority that clients are to be certified by cannot be used.
    #[error("clients cannot be verified by {}: {source}", path.display())]
    Authority {
        /// The file with its certificate.
        path: PathBuf,
        /// What is wrong with it.
        source: VerifierBuilderError,
    },
    /// The files are readable, but make no server.
    #[error("the certificates in {} cannot be used: {source}", directory.display())]
    Unusable {
        /// Where they lie.
        directory: PathBuf,
        /// What is wrong with them.
        source: rustls::Error,
    },
}

/// The files of a server's certificates, as they were read last.
#[derive(Debug)]
pub struct Certificates {
    directory: PathBuf,
    verify_peer: bool,
    /// Protocols that are agreed on while the connection is secured.
    protocols: &'static [&'static [u8]],
    config: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads `server-cert.pem` and `server-key.pem` in `directory`. With `verify_peer` a client must have a
    /// certificate of an authority in `ca-cert.pem` that is not revoked in `ca-crl.pem`, if that exists.
    ///
    /// # Errors
    /// When a file cannot be read, or they do not belong together.
    pub fn load(
        directory: &Path,
        verify_peer: bool,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, TlsError> {
        let config = RwLock::new(read(directory, verify_peer, protocols)?);
        Ok(Self { directory: directory.to_owned(), verify_peer, protocols, config })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// As [`Certificates::load`]; then those that were read before still count.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = read(&self.directory, self.verify_peer, self.protocols)?;
        *self.config.write() = config;
        Ok(())
    }

    /// What a connection that comes now is secured with.
    pub fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

fn read(directory: &Path, verify_peer: bool, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let unusable = |source| TlsError::Unusable { directory: directory.to_owned(), source };
    let chain = certificates(directory.join(CERTIFICATE))?;
    let path = directory.join(KEY);
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|source| TlsError::File { path, source })?;
    let verifier: Arc<dyn ClientCertVerifier> = if verify_peer {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(directory.join(AUTHORITY))? {
            roots.add(certificate).map_err(unusable)?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .with_crls(revoked(directory.join(REVOKED))?)
            .build()
            .map_err(|source| TlsError::Authority { path: directory.join(AUTHORITY), source })?
    } else {
        Arc::new(NoClientAuth)
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(unusable)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arc::new(config))
}

fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(&path)
        .and_then(Iterator::collect)
        .map_err(|source| TlsError::File { path, source })
}

fn revoked(path: PathBuf) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(Vec::new());
    }
    CertificateRevocationListDer::pem_file_iter(&path)
        .and_then(Iterator::collect)
        .map_err(|source| TlsError::File { path, source })
}
