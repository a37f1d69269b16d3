//! A file read through NFS, version 2, over an Ethernet of 10 Mbit/s.

use hs_device::{Service, WritableDevice};
use hs_engine::queue::Direction;
use hs_lab::Station;
use hs_units::{ByteRange, Nanos};

/// Bits a second of the Ethernet.
const ETHERNET: f64 = 10e6;

/// Bytes of a fragment that are its own, but for the header of IP: preamble, addresses and type, checksum,
/// and the gap before the next frame (IEEE 802.3).
const FRAME: u64 = 8 + 14 + 4 + 12;

/// Header of IP.
const IP: u64 = 20;

/// Bytes of a frame that carry something, with the header of IP.
const FRAME_PAYLOAD: u64 = 1_500;

/// Bytes of a reply that are not the file's: UDP, the reply of RPC (RFC 1057) and the attributes that NFS
/// sends with it (RFC 1094, section 2.2.6).
const REPLY: u64 = 8 + 24 + 4 + 68 + 4;

/// Bytes of a call: UDP, RPC with Unix credentials, a file handle, offset, count and total count.
const CALL: u64 = 8 + 40 + 60 + 32 + 12;

/// How long a message occupies the wire: its fragments, one behind the other.
pub(crate) fn on_the_wire(bytes: u64) -> Nanos {
    let fragments = bytes.div_ceil(FRAME_PAYLOAD - IP);
    let all = bytes + fragments * (FRAME + IP);
    Nanos::from_secs_f64(all as f64 * 8.0 / ETHERNET)
}

/// A part that does one thing at a time, in the order in which it is asked.
#[derive(Clone, Copy, Debug, Default)]
struct Stage {
    free: Nanos,
}

impl Stage {
    /// When something is done that takes so long and can begin at `now`.
    fn pass(&mut self, now: Nanos, takes: Nanos) -> Nanos {
        self.free = now.max(self.free) + takes;
        self.free
    }
}

/// Where the server has the file.
pub(crate) enum Source {
    /// In memory.
    Cache,
    /// On this disk. The server reads one block ahead, as the kernel's `breada` does.
    Disk {
        /// The disk.
        device: Box<dyn WritableDevice>,
        /// Until when it has read which block.
        read: Vec<(u64, Nanos)>,
    },
}

impl Source {
    pub(crate) fn disk(device: Box<dyn WritableDevice>) -> Self {
        Self::Disk { device, read: Vec::new() }
    }

    /// When a block is in the server's memory.
    fn fetch(&mut self, now: Nanos, range: ByteRange) -> Nanos {
        let Self::Disk { device, read } = self else { return now };
        for offset in [range.offset, range.end()] {
            if !read.iter().any(|(known, _)| *known == offset) {
                let service = device.submit(now, ByteRange::new(offset, range.len));
                read.push((offset, service.done));
            }
        }
        let done = read.iter().find(|(known, _)| *known == range.offset).map(|(_, done)| *done);
        read.retain(|(known, _)| *known >= range.offset);
        done.unwrap_or(now).max(now)
    }
}

/// Client, wire and server. A read takes the wire (the call), the server's processor, its disk, the wire (the
/// reply) and the client's processor, one read behind the other in each of them. How many are under way is
/// the queue's depth: those of the client's `biod` processes and the one of the program.
pub(crate) struct Nfs {
    /// What each of the processors takes for a read of 8 KiB.
    processor: Nanos,
    source: Source,
    calls: Stage,
    server: Stage,
    replies: Stage,
    client: Stage,
}

impl Nfs {
    pub(crate) fn new(processor: Nanos, source: Source) -> Self {
        let idle = Stage::default();
        Self { processor, source, calls: idle, server: idle, replies: idle, client: idle }
    }
}

impl Station for Nfs {
    fn serve(&mut self, now: Nanos, direction: Direction, range: ByteRange) -> Service {
        assert!(direction == Direction::Read, "the experiment reads");
        let called = self.calls.pass(now, on_the_wire(CALL));
        let understood = self.server.pass(called, self.processor);
        let fetched = self.source.fetch(understood, range);
        let replied = self.replies.pass(fetched, on_the_wire(REPLY + range.len));
        let done = self.client.pass(replied, self.processor);
        Service { starts: now, first_byte: done, done }
    }
}

/// What one processor takes for a read when `rate` bytes a second are read, two blocks at a time under way,
/// on two machines of one kind whose server has the file in memory: then twice the time of a block is the
/// time of one read.
pub(crate) fn processor_at(rate: f64, block: u64) -> Nanos {
    let read = 2.0 * block as f64 / rate;
    let wire = on_the_wire(CALL) + on_the_wire(REPLY + block);
    Nanos::from_secs_f64((read - wire.as_secs_f64()) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_six_frames() {
        // 8192 + 108 bytes of the message, six times 58 of frames and IP, at 0.8 µs a byte.
        assert_eq!(on_the_wire(REPLY + 8_192), Nanos::from_secs_f64((8_300 + 6 * 58) as f64 * 0.8e-6));
    }

    #[test]
    fn two_under_way_give_the_rate_again() {
        let processor = processor_at(250e3, 8 << 10);
        let mut link = Nfs::new(processor, Source::Cache);
        let mut done = [Nanos::ZERO; 2];
        for number in 0..1_000_usize {
            done[number % 2] = link.serve(done[number % 2], Direction::Read, ByteRange::new(0, 8 << 10)).done;
        }
        let rate = 1_000.0 * 8_192.0 / done[1].as_secs_f64();
        assert!((rate / 250e3 - 1.0).abs() < 0.01, "{rate}");
    }
}
