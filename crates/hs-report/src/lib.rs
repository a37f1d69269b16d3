//! The report page: recordings of starts, run summaries and results of the laboratory as one HTML file, and the
//! same data for other programs.

#![forbid(unsafe_code)]

pub mod model;

mod column;

#[cfg(test)]
mod model_tests;

pub use column::{Column, Number, Texts};
