//! Experiments of five documents of 1991 to 2013, the *seeds*, repeated with the engine on models of their
//! machines.
//!
//! Each experiment is a file that returns a [`Report`](hs_lab::Report). docs/PAPERS.md describes them.

#![forbid(unsafe_code)]

mod buffers_1991;
mod clients_2004;
mod colour_1991;
mod create_1991;
mod decay_1991;
pub mod document;
mod files_2012;
mod flash;
mod flash_2012;
mod flash_elevators_2012;
mod gather_1991;
mod hog_1991;
mod kernel_1991;
mod knoppix;
mod layers_2005;
mod live_cd_2005;
mod memory_2005;
mod merge_1991;
mod netboot_2004;
mod nfs;
mod priority_1991;
mod read_ahead_1991;
mod replay;
mod rotation_2005;
mod sfs;
mod storm_1991;

use std::num::NonZeroUsize;

use hs_lab::Experiment;
use lru::LruCache;

/// The experiments of this crate, in the order of the seeds.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "rotation-2005",
        about: "The rate of a CD drive by position for CLV, CAV, ZCAV, ZCLV and PCAV (seeds 000, figure 1)",
        parameters: "the paper's five kinds of rotation; radii and rate of a 24× drive from ECMA-130 and MMC, written from knowledge of them",
        engine: "the queue, one request at a time",
        run: rotation_2005::run,
    },
    Experiment {
        name: "live-cd-2005",
        about: "A live CD before and after its blocks were put in order (seeds 000, tables 1 and 2, figure 4)",
        parameters: "counts and sizes from tables 1 and 2; the drive as in docs/MEDIA.md; the trace is drawn from the moves of a start that we recorded",
        engine: "the disk engine with its prefetch brings the optimized start; the queue serves the scattered one",
        run: live_cd_2005::run,
    },
    Experiment {
        name: "memory-2005",
        about: "Reading whole files ahead against the size of memory (seeds 000, figure 3)",
        parameters: "blocks and drive of live-cd-2005; 241 files from seeds 003; what the system itself takes, and the memory sizes, are choices",
        engine: "the queue",
        run: memory_2005::run,
    },
    Experiment {
        name: "layers-2005",
        about: "What the layers of a live CD read, and how much would do (seeds 000, table 3)",
        parameters: "counts from table 3; which references are repeated is drawn at random",
        engine: "the disk engine with its prefetch reads",
        run: layers_2005::run,
    },
    Experiment {
        name: "netboot-2004",
        about: "A start from a server by image, desktop, link, compression and cache (seeds 001)",
        parameters: "the slides: 80 s of computing is the second start, rates of SFS with and without compression; bytes from seeds 000 and the slides",
        engine: "the queue, one request at a time, so nearly nothing",
        run: netboot_2004::run,
    },
    Experiment {
        name: "clients-2004",
        about: "Many clients that start at once from one server (the open question of seeds 001)",
        parameters: "those of netboot-2004; where SFS spends its time is a choice, and both are shown",
        engine: "the queue at the server, with shares for each client",
        run: clients_2004::run,
    },
    Experiment {
        name: "merge-1991",
        about: "Merging adjacent requests on the SCSI disks of a workstation of 1991, writing and reading",
        parameters: "disks from the driver of the workstations (4.4BSD), interface and command times from literature; hd286 is judged because of its year; of five disks two write within a fifth",
        engine: "the queue with merging, and the engine's read-ahead",
        run: merge_1991::run,
    },
    Experiment {
        name: "priority-1991",
        about: "Synchronous writes before asynchronous ones on a magneto-optical disk of 1989",
        parameters: "disk od282 from the driver and an owner's quotation of its manual; order of writes from the book on 4.3BSD; that the i-node is written synchronously at the end is an assumption",
        engine: "the queue with classes",
        run: priority_1991::run,
    },
    Experiment {
        name: "read-ahead-1991",
        about: "Reading one and four blocks ahead through NFS over an Ethernet of 10 Mbit/s",
        parameters: "Ethernet from IEEE 802.3; processor time a block from another measurement (Sun-3, 250 KB/s), scaled by the paper's MIPS",
        engine: "the engine's read-ahead, and the queue at client and server",
        run: read_ahead_1991::run,
    },
    Experiment {
        name: "gather-1991",
        about: "Gathering writes in an NFS server (seeds 002, table 4)",
        parameters: "wire and processors of read-ahead-1991, the disks of merge-1991; places a third of a disk apart are from the article on the file system",
        engine: "the write engine, and the queue with merging",
        run: gather_1991::run,
    },
    Experiment {
        name: "colour-1991",
        about: "Page colouring under Linpack on a direct-mapped cache (seeds 002, table 6)",
        parameters: "cache, memory and miss from the paper's table 1; cycles of an element are a count of instructions",
        engine: "none",
        run: colour_1991::run,
    },
    Experiment {
        name: "decay-1991",
        about: "4.3BSD's scheduling of processes with inheritance and without (seeds 002, section 7)",
        parameters: "4.3BSD's scheduler from the book; jobs and commands are choices",
        engine: "none",
        run: decay_1991::run,
    },
    Experiment {
        name: "buffers-1991",
        about: "A buffer cache as large as memory against a tenth of it (seeds 002, section 2)",
        parameters: "disk of merge-1991; memory of the paper's machine; sizes of files are choices",
        engine: "the queue",
        run: buffers_1991::run,
    },
    Experiment {
        name: "storm-1991",
        about: "A synchronous write behind a large dirty cache, with a bound and without (seeds 002, section 2 b)",
        parameters: "the paper's disk of 1988 and hdd-7200; how much is dirty is a choice",
        engine: "the write engine with its bounds; the queue",
        run: storm_1991::run,
    },
    Experiment {
        name: "create-1991",
        about: "Many small creates and deletes: what they write, and what is given back (seeds 002, section 8 c)",
        parameters: "the paper's disk of 1988 and hdd-7200; order of writes in place from the book on 4.3BSD; programs, files and a millisecond of processor are choices",
        engine: "the write engine with gathering, checkpoints and holes; the queue",
        run: create_1991::run,
    },
    Experiment {
        name: "hog-1991",
        about: "A program with large writes beside one with small synchronous ones (seeds 002, section 8 b)",
        parameters: "the paper's disk of 1988 and hdd-7200; sizes, depths and pauses are choices",
        engine: "the write engine with its bounds and its order of waiting writes; the queue",
        run: hog_1991::run,
    },
    Experiment {
        name: "files-2012",
        about: "The files of a start, laid out ever better on a hard disk (seeds 003)",
        parameters: "sizes, computing and rates from the author; the disk hdd-2010 (docs/MEDIA.md), whose positioning time is the author's; sizes of files and the file system are assumptions",
        engine: "the disk engine with its prefetch brings the optimized image; the queue serves the files",
        run: files_2012::run,
    },
    Experiment {
        name: "flash-2012",
        about: "Flash whose service time depends on the address step, one thread (seeds 004, figures 1, 2, 5, 6)",
        parameters: "emmc-2010 and emmc-2012 (docs/MEDIA.md), into which it is put that going up costs less",
        engine: "the queue with three elevators, and the engine's read-ahead",
        run: flash_2012::run,
    },
    Experiment {
        name: "flash-elevators-2012",
        about: "NOOP, DEADLINE and CFQ before flash, and their fairness (seeds 004, figures 3, 4, 7, 8, 9)",
        parameters: "those of flash-2012; that files of the Nexus 7 come through one process is our reading of why schedulers do not matter there",
        engine: "the queue with noop, deadline and cfq, and Jain's index",
        run: flash_elevators_2012::run,
    },
];

/// All experiments: those of the engine, and these.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    hs_lab::EXPERIMENTS.iter().chain(EXPERIMENTS)
}

/// A cache of blocks under LRU, as the kernels of the papers have.
fn lru_of(bytes: u64, block_bytes: u64) -> LruCache<u64, ()> {
    LruCache::new(lru_size(bytes, block_bytes))
}

/// How many blocks a cache of `bytes` has: one at least.
fn lru_size(bytes: u64, block_bytes: u64) -> NonZeroUsize {
    NonZeroUsize::new((bytes / block_bytes) as usize).unwrap_or(NonZeroUsize::MIN)
}
