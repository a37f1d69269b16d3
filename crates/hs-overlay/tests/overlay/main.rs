//! An overlay on a device that is a model: against a plain model of the disk, and under power cuts.

mod device;
mod faults;
mod hostile;
mod in_use;
mod model;
mod power_cuts;
mod week;
mod world;
