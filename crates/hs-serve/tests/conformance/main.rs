//! One suite for every front end: whatever is read through it is what lies in the raw disk, or an error.

mod certificates;
#[path = "../support/filling.rs"]
mod filling;
mod fronts;
#[path = "../support/gate.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod gate;
mod merging;
mod nbd_client;
mod nbd_guests;
mod nbd_strangers;
mod reads;
mod sample;
