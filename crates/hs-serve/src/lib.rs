//! The driver loop and the front ends.
