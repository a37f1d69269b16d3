//! The disks that are shown: of an image through the disk engine, the same with changes, and a plain file
//! through its store.

use hs_disk::{Requester, ServedDisk};
use hs_keep::{KeptDisk, ZeroKind};
use hs_serve::{FileDisk, errno, user_key};
use hs_units::ByteRange;

use crate::{Disk, DoneReply, Reply};

impl Disk for ServedDisk {
    fn bytes(&self) -> u64 {
        self.image().exact_bytes()
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        let requester = Requester::waiting(user_key(reply.uid()));
        self.submit_for(requester, offset, len, move |result| match result {
            Ok(pieces) => reply.data(pieces),
            // The disk has logged the error.
            Err(error) => reply.error(errno(error)),
        });
    }
}

impl Disk for KeptDisk {
    fn bytes(&self) -> u64 {
        self.exact_bytes()
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        let requester = Requester::waiting(user_key(reply.uid()));
        self.submit(requester, offset, len, move |result| match result {
            Ok(pieces) => reply.data(pieces),
            Err(errno) => reply.error(errno),
        });
    }

    fn takes_writes(&self) -> bool {
        true
    }

    fn write(&self, offset: u64, bytes: Vec<u8>, reply: DoneReply) {
        let requester = Requester::waiting(user_key(reply.uid()));
        Self::write(self, requester, offset, bytes, false, move |result| reply.result(result));
    }

    fn zero(&self, range: ByteRange, may_be_hole: bool, reply: DoneReply) {
        let requester = Requester::waiting(user_key(reply.uid()));
        let kind = if may_be_hole { ZeroKind::Holes } else { ZeroKind::Zeros };
        Self::zero(self, requester, range, kind, false, move |result| reply.result(result));
    }

    fn flush(&self, reply: DoneReply) {
        Self::flush(self, move |result| reply.result(result));
    }
}

impl Disk for FileDisk {
    fn bytes(&self) -> u64 {
        self.len()
    }

    fn read(&self, offset: u64, len: u32, reply: Reply) {
        // A reply that is dropped answers EIO.
        self.submit(offset, len, move |result| match result {
            Ok(bytes) => reply.data(&[bytes]),
            Err(errno) => reply.error(errno),
        });
    }
}
