//! A loop device that reads its file through the page cache, as one without direct I/O does.
//!
//! `drivers/block/loop.c` of Linux 6.18: one worker reads for all requests of a control group, one after
//! another, each as a call that waits for its pages (`loop_process_work`, `lo_read_simple`), with the
//! read-ahead of the file's descriptor.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hs_engine::queue::{Class, ClientKey, Direction};
use hs_units::{BLOCK_BYTES, BlockRange, ByteRange};

use super::page_cache::{PageCache, PageState};
use crate::simulation::Io;

/// A request to the loop device, and how far it is served.
#[derive(Clone, Copy, Debug)]
struct Call {
    asked: u64,
    next: u64,
    end: u64,
}

/// The device over a raw disk.
pub(crate) struct LoopDevice {
    cache: PageCache,
    client: ClientKey,
    calls: VecDeque<Call>,
    /// Pages that are on their way, by the request to the medium.
    coming: BTreeMap<usize, (u64, Range<u64>)>,
    next_number: u64,
}

impl LoopDevice {
    /// One over a file of `blocks`, in which the kernel reads `ahead` pages ahead.
    pub(crate) const fn new(blocks: u64, ahead: u64, client: ClientKey) -> Self {
        let cache = PageCache::new(blocks, ahead);
        Self { cache, client, calls: VecDeque::new(), coming: BTreeMap::new(), next_number: 0 }
    }

    /// A read of blocks, as part of the request `asked`.
    pub(crate) fn read(&mut self, asked: u64, blocks: BlockRange) {
        self.calls.push_back(Call { asked, next: blocks.start.0, end: blocks.end().0 });
    }

    /// A request to the medium has ended.
    pub(crate) fn handle_done(&mut self, request: usize) {
        if let Some((number, pages)) = self.coming.remove(&request) {
            self.cache.arrived(pages, number);
        }
    }

    /// Works until it has to wait; returns the request of each call that is done.
    pub(crate) fn work(&mut self, io: &mut Io) -> Vec<u64> {
        let mut done = Vec::new();
        while let Some(call) = self.calls.front().copied() {
            if call.next >= call.end {
                self.cache.read_until(call.end);
                done.push(call.asked);
                self.calls.pop_front();
                continue;
            }
            let wanted = call.end - call.next;
            match self.cache.find(call.next) {
                PageState::Missing => {
                    let (pages, mark) = self.cache.miss(call.next, wanted);
                    self.ask(io, pages, mark);
                }
                found => {
                    if let Some((pages, mark)) = self.cache.hit(call.next, wanted) {
                        self.ask(io, pages, mark);
                    }
                    if matches!(found, PageState::Coming(_)) {
                        return done;
                    }
                    self.calls[0].next += 1;
                }
            }
        }
        done
    }

    fn ask(&mut self, io: &mut Io, pages: Range<u64>, mark: Option<u64>) {
        for pages in self.cache.ask(pages, mark, self.next_number) {
            let range = ByteRange::new(pages.start * BLOCK_BYTES, (pages.end - pages.start) * BLOCK_BYTES);
            let request = io.request(Class::Demand, self.client, Direction::Read, range);
            self.coming.insert(request, (self.next_number, pages));
            self.next_number += 1;
        }
    }
}
