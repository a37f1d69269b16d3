//! Bytes as what stores of objects answer at the end of an upload: the error messages of S3 and Azure.

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    hs_remote::cloud::understands_answer(data)
}
