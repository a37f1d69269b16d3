//! Disks that are served from real images: what reads get, what they wait for, what is kept, and what damage,
//! bad sectors, outages and panics do to them.

#[path = "../../../hs-build/tests/image/sample.rs"]
mod sample;
#[path = "../served/mod.rs"]
mod served;

mod bases;
mod cached;
mod damage;
mod errors_log;
mod joining;
mod keeping;
mod locks;
mod marking;
mod outages;
mod patience;
mod reading;
mod sharing;
mod tables;
mod truncation;
mod unreadable;
mod waiting;
