//! The system's certificate authorities, loaded when first needed: [`Authorities`].

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The system's authorities. There are more than a hundred, often one file each, to be opened and parsed. A
/// reader over plain HTTP, where the image's name verifies the bytes, never loads them. The library judges
/// what they say of a server.
#[derive(Debug)]
pub(super) struct Authorities {
    provider: Arc<CryptoProvider>,
    /// None where the system has no authority.
    verifier: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
}

impl Authorities {
    pub(super) const fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, verifier: OnceLock::new() }
    }

    fn read(&self) -> Option<Arc<WebPkiServerVerifier>> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in found.errors {
            log::debug!("certificates of authorities: {error}");
        }
        roots.add_parsable_certificates(found.certs);
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .inspect_err(|error| log::warn!("no server can be trusted over TLS: {error}"))
            .ok()
    }
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.verifier.get_or_init(|| self.read()) {
            Some(verifier) => {
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
