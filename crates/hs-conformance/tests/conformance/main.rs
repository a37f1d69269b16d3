//! One suite for every front end: what is read through it is what lies in the raw disk, or an error.

mod certificates;
#[path = "../../../hs-fill/tests/support/filling.rs"]
mod filling;
mod fronts;
#[path = "../../../hs-vhost/tests/support/guest.rs"]
#[expect(dead_code, reason = "the tests of hs-vhost use the rest")]
mod guest;
mod merging;
mod nbd_client;
mod nbd_guests;
mod nbd_strangers;
mod reads;
