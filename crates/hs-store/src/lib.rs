//! Random-access bytes, and layers over them.
