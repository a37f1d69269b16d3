//! Models of a person's own: any text is a model that serves requests in time, or an error with its line.

#![no_main]

use hs_device::{Medium, Model};
use hs_units::{ByteRange, Nanos};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Model::from_toml(text) {
        Ok(model) => {
            let medium = Medium::Model(model);
            let Ok(Some(mut device)) = medium.device(1 << 16) else { return };
            for offset in [0, 1 << 15, 4096] {
                let served = device.submit(Nanos::ZERO, ByteRange::new(offset, 4096));
                assert!(served.starts <= served.first_byte && served.first_byte <= served.done);
            }
        }
        Err(error) => assert!(error.line >= 1 && error.line <= text.lines().count() + 1),
    }
});
