//! An authority, and certificates of it for a server and a client, made by GnuTLS's certtool as people make
//! them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// Whether this machine has what makes them; that it has not is said aloud, and a failure in CI.
pub(crate) fn are_to_be_had() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        let found = Command::new("certtool").arg("--version").stdin(Stdio::null()).output();
        found.is_ok_and(|output| output.status.success())
    });
    if !found {
        hs_testing::skip("certtool is not installed");
    }
    found
}

/// Where they lie.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(make).path()
}

fn make() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let certtool = |words: &[&str]| {
        let made = Command::new("certtool")
            .args(words)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("certtool starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    for (name, template) in [
        ("ca", "cn = an authority\nca\ncert_signing_key\n"),
        ("server", "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\n"),
        ("client", "cn = a client\ntls_www_client\nsigning_key\n"),
    ] {
        let [info, key, cert] = ["info", "key.pem", "cert.pem"].map(|end| format!("{name}-{end}"));
        fs::write(folder.path().join(&info), format!("{template}expiration_days = 30\n")).expect("written");
        certtool(&["--generate-privkey", "--key-type=ed25519", "--outfile", &key]);
        let signed: &[&str] = if name == "ca" {
            &["--generate-self-signed"]
        } else {
            let by = ["--load-ca-certificate", "ca-cert.pem", "--load-ca-privkey", "ca-key.pem"];
            &["--generate-certificate", by[0], by[1], by[2], by[3]]
        };
        certtool(&[signed, &["--load-privkey", &key, "--template", &info, "--outfile", &cert]].concat());
    }
    folder
}

/// A client that has a certificate, and trusts the authority.
pub(crate) fn client_config() -> Arc<ClientConfig> {
    let file = |name: &str| folder().join(name);
    let certificate = |name| CertificateDer::from_pem_file(file(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca-cert.pem")).expect("an authority");
    let key = PrivateKeyDer::from_pem_file(file("client-key.pem")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate("client-cert.pem")], key)
        .expect("a certificate with its key");
    Arc::new(config)
}
