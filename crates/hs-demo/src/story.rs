//! The stories as data: what each needs of this machine, what its files are called, and what tells it.

use std::time::Duration;

use hs_trace::Profile;
use serde_json::Value;

use super::cache::Cache;
use super::disks::{self, Files};
use super::facts::Facts;
use super::guest::Guest;
use super::tools::{self, Tool};
use super::turns::{Rounds, Tally};
use super::{Demo, boot, resume, start};
use hs_output::show::Bar;

/// A story.
pub(super) struct Story {
    /// Its name in demo.json.
    pub(super) key: &'static str,
    /// What it is, for people.
    pub(super) about: &'static str,
    /// When it must be told at the latest, from the beginning of the demo. Not used when a number of runs is
    /// given.
    pub(super) within: Duration,
    /// Its disk.
    pub(super) files: &'static Files,
    /// The recorded start's name in the cache and in the output folder.
    pub(super) profile: &'static str,
    /// The prefix of its runs' file names.
    pub(super) prefix: &'static str,
    /// Whether the summaries of its median runs stand at the top of demo.json.
    pub(super) has_runs_at_the_top: bool,
    /// What a user can do next: words before and behind the image.
    pub(super) hint: [&'static str; 2],
    pub(super) tools: &'static [Tool],
    /// Programs of which one is enough, the better ones first.
    pub(super) any_of: &'static [Tool],
    /// Bytes that it needs at most, from nothing: its root, its raw disk and once more while that is made,
    /// and its compressed files.
    pub(super) from_nothing_bytes: u64,
    /// When its root is there.
    pub(super) with_root_bytes: u64,
    /// When only what depends on the profile is made again.
    pub(super) with_all_bytes: u64,
    /// Tells it.
    pub(super) tell: fn(&Telling<'_>) -> anyhow::Result<StoryResult>,
}

/// What a story is told with.
pub(super) struct Telling<'a> {
    pub(super) args: &'a Demo,
    pub(super) facts: &'a Facts,
    pub(super) cache: &'a Cache,
    /// Of its root.
    pub(super) root_stamp: &'a str,
    pub(super) rounds: Rounds,
    pub(super) bar: &'a Bar,
    /// What runs a guest here; `None` when no story needs one.
    pub(super) guest: Option<&'a anyhow::Result<Guest>>,
}

/// The result of one story, as text and as JSON.
pub(super) struct StoryResult {
    pub(super) story: &'static Story,
    pub(super) outcome: Value,
    pub(super) tallies: Vec<Tally>,
    pub(super) profile: Profile,
    /// For people.
    pub(super) text: String,
}

/// A program starts.
pub(super) static START: Story = Story {
    key: "start",
    about: "the first story (a program starts)",
    within: Duration::from_secs(290),
    files: &disks::START,
    profile: "start.hsp",
    prefix: "",
    has_runs_at_the_top: false,
    hint: ["headstart run", " -- python3"],
    tools: &[tools::MKSQUASHFS],
    any_of: &[],
    from_nothing_bytes: 2_200_000_000,
    with_root_bytes: 1_700_000_000,
    with_all_bytes: 400_000_000,
    tell: start::tell,
};

/// A system boots.
pub(super) static BOOT: Story = Story {
    key: "boot",
    about: "the second story (a system boots)",
    within: Duration::from_secs(470),
    files: &disks::BOOT,
    profile: "boot.hsp",
    prefix: "boot-",
    has_runs_at_the_top: true,
    hint: ["headstart boot", ""],
    tools: &[],
    // Which of them runs a guest here is found out by trying.
    any_of: &[tools::UML, tools::QEMU],
    from_nothing_bytes: 1_300_000_000,
    with_root_bytes: 1_000_000_000,
    with_all_bytes: 200_000_000,
    tell: boot::tell,
};

/// A saved guest goes on.
pub(super) static RESUME: Story = Story {
    key: "resume",
    about: "the third story (a saved guest goes on)",
    within: Duration::from_secs(780),
    files: &disks::RESUME,
    profile: "resume.hsp",
    prefix: "resume-",
    has_runs_at_the_top: false,
    hint: ["headstart boot --vmm qemu", " --snapshot-out FILE"],
    tools: &[tools::QEMU],
    any_of: &[],
    from_nothing_bytes: 2_000_000_000,
    with_root_bytes: 1_500_000_000,
    with_all_bytes: 400_000_000,
    tell: resume::tell,
};
