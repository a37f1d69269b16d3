//! Bytes as what stores of objects answer while something is sent there: XML of S3 and Azure.

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    hs_remote::cloud::understands_answer(data)
}
