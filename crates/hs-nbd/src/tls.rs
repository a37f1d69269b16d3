//! TLS for NBD clients: from files to a configuration, and from bytes to records and back.
//!
//! A [`TlsSession`] does no I/O. The thread that has an answer seals it under the lock of the connection's
//! sending half, so that records leave in the order of their numbers. The connection's thread opens received
//! records under the same lock.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use hs_serve::{Certificates, TlsError};
use rustls::ServerConnection;

use super::protocol::Security;

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
    pub fn load(directory: &Path, required: bool, verify_peer: bool) -> Result<Self, TlsError> {
        let certificates = Certificates::load(directory, verify_peer, &[])?;
        Ok(Self { certificates: Arc::new(certificates), required })
    }

    /// Reads the files again, for connections that come from now on.
    ///
    /// # Errors
    /// As [`NbdTls::load`]; then those that were read before still count.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.certificates.reload()
    }

    pub(super) const fn security(&self) -> Security {
        if self.required { Security::Required } else { Security::Offered }
    }

    pub(super) fn session(&self) -> Result<TlsSession, rustls::Error> {
        Ok(TlsSession { connection: ServerConnection::new(self.certificates.now())? })
    }
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
