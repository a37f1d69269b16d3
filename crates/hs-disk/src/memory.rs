//! How much memory this process may take: what the system says (`hs_linux::MemoryProbe`), looked at now and
//! then ([`watch`]), a cache that grows and shrinks by it ([`keeper`]), and what is free in the heap
//! ([`heap`]). The decisions are `hs_engine::MemoryBudget`'s.

pub(crate) mod heap;
pub(crate) mod keeper;
pub(crate) mod watch;
