//! Models of media: request to service time.
