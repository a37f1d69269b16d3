//! The disks that are shown: of an image through the disk engine, and a plain file through its store.

use hs_disk::{Requester, ServedDisk};
use hs_serve::{FileDisk, errno, user_key};

use crate::{Disk, Reply};

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
