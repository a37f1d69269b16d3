//! Prefetch policy as pure logic.
