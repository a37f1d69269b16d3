//! Archives and containers' images as sources, against what GNU tar unpacks.

mod hostile;
mod layers;
mod support;
mod tar;
