//! Experiments of five documents of 1991 to 2013, the *seeds*, repeated with the engine on models of their
//! machines.
//!
//! Each experiment is a file that returns a [`Report`](hs_lab::Report). docs/LAB.md says how to run them.

#![forbid(unsafe_code)]

mod buffers_1991;
mod clients_2004;
mod colour_1991;
mod decay_1991;
mod files_2012;
mod flash;
mod flash_2012;
mod flash_elevators_2012;
mod gather_1991;
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

use hs_lab::Experiment;

/// The experiments of this crate, in the order of the seeds.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "rotation-2005",
        about: "The rate of a CD drive by position for CLV, CAV, ZCAV, ZCLV and PCAV (seeds 000, figure 1)",
        run: rotation_2005::run,
    },
    Experiment {
        name: "live-cd-2005",
        about: "A live CD before and after its blocks were put in order (seeds 000, tables 1 and 2, figure 4)",
        run: live_cd_2005::run,
    },
    Experiment {
        name: "memory-2005",
        about: "Reading whole files ahead against the size of memory (seeds 000, figure 3)",
        run: memory_2005::run,
    },
    Experiment {
        name: "layers-2005",
        about: "What the layers of a live CD read, and how much would do (seeds 000, table 3)",
        run: layers_2005::run,
    },
    Experiment {
        name: "netboot-2004",
        about: "A start from a server by image, desktop, link, compression and cache (seeds 001)",
        run: netboot_2004::run,
    },
    Experiment {
        name: "clients-2004",
        about: "Many clients that start at once from one server (the open question of seeds 001)",
        run: clients_2004::run,
    },
    Experiment {
        name: "merge-1991",
        about: "Merging adjacent requests on the SCSI disks of a workstation of 1991, writing and reading",
        run: merge_1991::run,
    },
    Experiment {
        name: "priority-1991",
        about: "Synchronous writes before asynchronous ones on a magneto-optical disk of 1989",
        run: priority_1991::run,
    },
    Experiment {
        name: "read-ahead-1991",
        about: "Reading one and four blocks ahead through NFS over an Ethernet of 10 Mbit/s",
        run: read_ahead_1991::run,
    },
    Experiment {
        name: "gather-1991",
        about: "Gathering writes in an NFS server (seeds 002, table 4)",
        run: gather_1991::run,
    },
    Experiment {
        name: "colour-1991",
        about: "Page colouring under Linpack on a direct-mapped cache (seeds 002, table 6)",
        run: colour_1991::run,
    },
    Experiment {
        name: "decay-1991",
        about: "4.3BSD's scheduling of processes with inheritance and without (seeds 002, section 7)",
        run: decay_1991::run,
    },
    Experiment {
        name: "buffers-1991",
        about: "A buffer cache as large as memory against a tenth of it (seeds 002, section 2)",
        run: buffers_1991::run,
    },
    Experiment {
        name: "files-2012",
        about: "The files of a start, laid out ever better on a hard disk (seeds 003)",
        run: files_2012::run,
    },
    Experiment {
        name: "flash-2012",
        about: "Flash whose service time depends on the address step, one thread (seeds 004, figures 1, 2, 5, 6)",
        run: flash_2012::run,
    },
    Experiment {
        name: "flash-elevators-2012",
        about: "NOOP, DEADLINE and CFQ before flash, and their fairness (seeds 004, figures 3, 4, 7, 8, 9)",
        run: flash_elevators_2012::run,
    },
];

/// All experiments: those of the engine, and these.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    hs_lab::EXPERIMENTS.iter().chain(EXPERIMENTS)
}
