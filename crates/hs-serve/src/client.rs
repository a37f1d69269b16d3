//! The clients that share a served disk fairly, by keys, and the error numbers that they get.

use std::net::IpAddr;

use hs_engine::queue::ClientKey;
use hs_image::ImageError;

/// The client of a read: each user of this machine has one share of the medium, over all front ends.
pub fn user_key(uid: u32) -> ClientKey {
    ClientKey(1 << 32 | u64::from(uid))
}

/// A client is one address; of IPv6 it is a /64, which usually is one customer's network. IPv4 addresses that
/// are mapped into IPv6 count as IPv4.
pub fn address_key(address: IpAddr) -> ClientKey {
    ClientKey(match address.to_canonical() {
        IpAddr::V4(address) => 2 << 32 | u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 1 << 63,
    })
}

/// The error number of a failed read, for all front ends.
pub fn errno(error: &ImageError) -> i32 {
    match error {
        ImageError::OutsideDisk { .. } => libc::EINVAL,
        ImageError::Closed => libc::ESHUTDOWN,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_client_and_of_ipv6_a_network_is() {
        let key = |text: &str| address_key(text.parse().unwrap());
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    }
}
