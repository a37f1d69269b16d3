//! Models of a person's own: any text is a model that serves requests in time, or an error with its line.

use hs_device::{Medium, Model};
use hs_units::{ByteRange, Nanos};

/// Whether the input was accepted; panics when a promise is broken.
pub fn run(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else { return false };
    match Model::from_toml(text) {
        Ok(model) => {
            let medium = Medium::Model(model);
            let Ok(Some(mut device)) = medium.device(1 << 16) else { return false };
            for offset in [0, 1 << 15, 4096] {
                let served = device.submit(Nanos::ZERO, ByteRange::new(offset, 4096));
                assert!(served.starts <= served.first_byte && served.first_byte <= served.done);
            }
            true
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count() + 1);
            false
        }
    }
}
