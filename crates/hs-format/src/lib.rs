//! The headstart image format: bytes to structs and back.
