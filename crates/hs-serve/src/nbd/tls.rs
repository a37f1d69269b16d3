//! TLS for NBD clients: from files to a configuration, and from bytes to records and back.
//!
//! A [`TlsSession`] does no I/O. The thread that has an answer seals it under the lock of the connection's
//! sending half, so that records leave in the order of their numbers. The connection's thread opens received
//! records under the same lock.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::protocol::Security;
use crate::ServeError;

/// Names of the files, as nbdkit and QEMU have them.
const AUTHORITY: &str = "ca-cert.pem";
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// Bytes that are sealed before their records are taken away: it bounds what is in memory twice.
const SEAL_BYTES: usize = 64 << 10;

/// How a server proves its identity, and what it demands of clients.
#[derive(Clone, Debug)]
pub struct NbdTls {
    certificates: Arc<Certificates>,
    required: bool,
}

impl NbdTls {
    /// Reads `server-cert.pem` and `server-key.pem` in `directory`. With `verify_peer` a client must have a
    /// certificate of an authority in `ca-cert.pem` that is not revoked in `ca-crl.pem`, if that exists. With
    /// `required` clients that do not ask for TLS learn nothing of the exports.
    ///
    /// # Errors
    /// When a file cannot be read, or they do not belong together.
    pub fn load(directory: &Path, required: bool, verify_peer: bool) -> Result<Self, ServeError> {
        let certificates = Certificates::load(directory, verify_peer, &[])?;
        Ok(Self { certificates: Arc::new(certificates), required })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// As [`NbdTls::load`]; then those that were read before still count.
    pub fn reload(&self) -> Result<(), ServeError> {
        self.certificates.reload()
    }

    pub(super) const fn security(&self) -> Security {
        if self.required { Security::Required } else { Security::Offered }
    }

    pub(super) fn session(&self) -> Result<TlsSession, rustls::Error> {
        Ok(TlsSession { connection: ServerConnection::new(self.certificates.now())? })
    }
}

/// The files of a server's certificates, as they were read last.
#[derive(Debug)]
pub(crate) struct Certificates {
    directory: PathBuf,
    verify_peer: bool,
    /// Protocols that are agreed on while the connection is secured.
    protocols: &'static [&'static [u8]],
    config: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    pub(crate) fn load(
        directory: &Path,
        verify_peer: bool,
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, ServeError> {
        let config = RwLock::new(read(directory, verify_peer, protocols)?);
        Ok(Self { directory: directory.to_owned(), verify_peer, protocols, config })
    }

    pub(crate) fn reload(&self) -> Result<(), ServeError> {
        let config = read(&self.directory, self.verify_peer, self.protocols)?;
        *self.config.write() = config;
        Ok(())
    }

    /// What a connection that comes now is secured with.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }
}

fn read(directory: &Path, verify_peer: bool, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, ServeError> {
    let provider = Arc::new(ring::default_provider());
    let unusable = |source| ServeError::TlsUnusable { directory: directory.to_owned(), source };
    let chain = certificates(directory.join(CERTIFICATE))?;
    let path = directory.join(KEY);
    let key = PrivateKeyDer::from_pem_file(&path).map_err(|source| ServeError::TlsFile { path, source })?;
    let verifier: Arc<dyn ClientCertVerifier> = if verify_peer {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(directory.join(AUTHORITY))? {
            roots.add(certificate).map_err(unusable)?;
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .with_crls(revoked(directory.join(REVOKED))?)
            .build()
            .map_err(|source| ServeError::TlsAuthority { path: directory.join(AUTHORITY), source })?
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

fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    CertificateDer::pem_file_iter(&path)
        .and_then(Iterator::collect)
        .map_err(|source| ServeError::TlsFile { path, source })
}

fn revoked(path: PathBuf) -> Result<Vec<CertificateRevocationListDer<'static>>, ServeError> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(Vec::new());
    }
    CertificateRevocationListDer::pem_file_iter(&path)
        .and_then(Iterator::collect)
        .map_err(|source| ServeError::TlsFile { path, source })
}

/// The result of opening records.
pub(super) struct Opened {
    /// What they carried, in order.
    pub(super) plain: Vec<u8>,
    /// Records that are to be sent for them, also when they were wrong.
    pub(super) send: Vec<u8>,
    /// The client sends nothing more.
    pub(super) ended: bool,
}

/// One conversation under TLS.
#[derive(Debug)]
pub(super) struct TlsSession {
    connection: ServerConnection,
}

impl TlsSession {
    /// The records that carry `head` and `pieces`.
    pub(super) fn seal(&mut self, head: &[u8], pieces: &[&[u8]]) -> io::Result<Vec<u8>> {
        let bytes = head.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let mut records = Vec::with_capacity(bytes + bytes / 256 + 64);
        for piece in std::iter::once(&head).chain(pieces) {
            for part in piece.chunks(SEAL_BYTES) {
                self.connection.writer().write_all(part)?;
                self.take_records(&mut records)?;
            }
        }
        Ok(records)
    }

    /// The record that marks the end.
    pub(super) fn seal_end(&mut self) -> io::Result<Vec<u8>> {
        let mut records = Vec::new();
        self.connection.send_close_notify();
        self.take_records(&mut records)?;
        Ok(records)
    }

    /// Takes bytes that have come, cut anywhere.
    pub(super) fn open(&mut self, mut bytes: &[u8]) -> (Opened, Result<(), rustls::Error>) {
        let mut opened = Opened { plain: Vec::new(), send: Vec::new(), ended: false };
        let mut outcome = Ok(());
        while outcome.is_ok() && !bytes.is_empty() && !opened.ended {
            outcome = self.open_some(&mut bytes, &mut opened);
        }
        // An alert, if they were wrong.
        if let Err(error) = self.take_records(&mut opened.send) {
            outcome = outcome.and(Err(rustls::Error::General(error.to_string())));
        }
        (opened, outcome)
    }

    fn open_some(&mut self, bytes: &mut &[u8], opened: &mut Opened) -> Result<(), rustls::Error> {
        let general = |error: io::Error| rustls::Error::General(error.to_string());
        self.connection.read_tls(bytes).map_err(general)?;
        self.connection.process_new_packets()?;
        match self.connection.reader().read_to_end(&mut opened.plain) {
            Ok(_) => opened.ended = true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(general(error)),
        }
        Ok(())
    }

    fn take_records(&mut self, records: &mut Vec<u8>) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(records)?;
        }
        Ok(())
    }
}
