//! Names of processors.

/// The name that containers' images have for a processor (Go's GOARCH), from Rust's.
#[must_use]
pub fn oci_architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}
