//! The Debian roots of the stories.

use hs_output::show::Bar;

use super::cache::Cache;
use super::root::Root;

/// Makes those of `roots` that are not kept, all at the same time, since installing packages keeps one core
/// busy at most; gives their stamps. One that cannot be made is an error of its own story.
pub(super) fn make(cache: &Cache, roots: &[&'static Root], bar: &Bar) -> Vec<anyhow::Result<String>> {
    std::thread::scope(|scope| {
        let made: Vec<_> = roots.iter().map(|root| scope.spawn(|| root.make(cache, bar))).collect();
        made.into_iter().map(super::join).collect()
    })
}
