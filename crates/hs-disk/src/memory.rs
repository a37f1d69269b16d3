//! How much memory this process may take: what the system says ([`probe`]), looked at now and then
//! ([`watch`]), and a cache that grows and shrinks by it ([`keeper`]). The decisions are
//! `hs_engine::MemoryBudget`'s.

pub(crate) mod keeper;
pub(crate) mod probe;
pub(crate) mod watch;
