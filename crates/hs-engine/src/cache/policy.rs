//! Which entry leaves a full cache.

use super::lru::Lru;
use super::s3_fifo::S3Fifo;
use super::sieve::Sieve;
use super::w_tiny_lfu::WTinyLfu;

/// How many entries one eviction looks at, at most.
///
/// SIEVE and S3-FIFO pass over entries that were asked for, which is O(1) on average only: after a million
/// hits in a row the next eviction would look at a million entries. After so many the next one goes
/// whatever it is. (The 1991 paper warns of just this, seeds 002 section 2: 「オリジナルのバッファキャッシュ
/// 操作アルゴリズムにはバッファキャッシュの数が比較的少ないことを前提にしているものがあり、そのままでは
/// 非常に効率が悪い」: algorithms made for few buffers are very slow with many.)
pub(super) const EXAMINED_AT_MOST: usize = 64;

/// An eviction policy: it learns what comes, is asked for and goes, and it chooses which entry leaves next.
///
/// It sees slots, weights in bytes and hashes, never keys or values. Every call is O(1), at a million entries
/// as at ten. Each entry that comes and goes is reported to it.
pub trait EvictionPolicy: Send + std::fmt::Debug {
    /// Its published name.
    fn kind(&self) -> PolicyKind;

    /// Entries of this many bytes fit from now on. The caller removes the rest with
    /// [`EvictionPolicy::evict`].
    fn set_capacity(&mut self, bytes: u64);

    /// An entry has come; there is room for it.
    fn inserted(&mut self, slot: u32, hash: u64, weight: u64);

    /// An entry was asked for.
    fn touched(&mut self, slot: u32);

    /// An entry left without a decision of the policy.
    fn removed(&mut self, slot: u32);

    /// Chooses the entry that leaves now, and forgets it; `None` when there is no entry.
    fn evict(&mut self) -> Option<u32>;
}

/// The policies there are, by their published names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// Least recently used.
    Lru,
    /// SIEVE.
    Sieve,
    /// S3-FIFO.
    S3Fifo,
    /// W-TinyLFU.
    WTinyLfu,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lru, Self::Sieve, Self::S3Fifo, Self::WTinyLfu];

    /// The word for flags and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::WTinyLfu => "w-tinylfu",
        }
    }

    /// A policy of this kind, for entries of `capacity_bytes` in all.
    #[must_use]
    pub fn policy(self, capacity_bytes: u64) -> Box<dyn EvictionPolicy> {
        match self {
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
            Self::S3Fifo => Box::new(S3Fifo::new(capacity_bytes)),
            Self::WTinyLfu => Box::new(WTinyLfu::new(capacity_bytes)),
        }
    }
}
