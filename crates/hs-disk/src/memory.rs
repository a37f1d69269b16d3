//! How much memory this process may take: what the system says (`hs_linux::MemoryProbe`), looked at now and
//! then ([`watch`]), and a cache that grows and shrinks by it ([`keeper`]). The decisions are
//! `hs_engine::MemoryBudget`'s.

pub(crate) mod keeper;
pub(crate) mod watch;
