//! What a server says of a file's version, and how far that is believed: [`Marks`].

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::HttpError;
use super::reply::Version;

/// Whether entity tags and dates tell the file that was opened from another one.
///
/// Where the image's name is known its digests prove every byte. Then tags and dates are only a hint: the
/// edges of a content delivery network give one file different ones.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// A layer above verifies the bytes against digests that it trusts.
    are_proven: AtomicBool,
    /// Requests go without `If-Match`, which the server has refused for the file that was opened.
    is_unmatched: AtomicBool,
    has_said: AtomicBool,
}

impl Marks {
    pub(super) fn prove(&self) {
        self.are_proven.store(true, Relaxed);
    }

    pub(super) fn are_proven(&self) -> bool {
        self.are_proven.load(Relaxed)
    }

    /// The tag for `If-Match`.
    pub(super) fn matched<'a>(&self, opened: Option<&'a Version>) -> Option<&'a str> {
        opened.and_then(Version::strong_tag).filter(|_| !self.is_unmatched.load(Relaxed))
    }

    /// Checks an answer that brings bytes of the version `now`; `was_refused` says that the server refused
    /// the same request with `If-Match`.
    ///
    /// # Errors
    /// [`HttpError::Replaced`] when it may be another file and no digest would tell.
    pub(super) fn check(
        &self,
        name: &str,
        was: &Version,
        now: &Version,
        was_refused: bool,
    ) -> Result<(), HttpError> {
        let (may_be, is_proven) = (was.may_be(now), self.are_proven());
        // Without a tag in the second answer the first is all that tells.
        let is_same = may_be && (!was_refused || was.etag == now.etag);
        if !is_same && !is_proven {
            return Err(HttpError::Replaced { was: was.to_string(), is: now.to_string() });
        }
        if is_same && !was_refused {
            return Ok(());
        }
        self.is_unmatched.store(true, Relaxed);
        if !self.has_said.swap(true, Relaxed) {
            let what = if may_be {
                format!("the server refuses If-Match for the file that it has ({was})")
            } else {
                format!("the server's answers give this file different tags or dates ({was}; {now})")
            };
            let why = if is_proven { "its digests prove the bytes" } else { "its tags are compared here" };
            log::warn!("{name}: {what}; reading goes on, because {why}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: Option<&str>) -> Version {
        Version { len: 10, etag: tag.map(str::to_owned), last_modified: None }
    }

    #[test]
    fn what_is_proven_by_digests_needs_no_tag() {
        let (one, two, none) = (version(Some("\"1\"")), version(Some("\"2\"")), version(None));
        for (is_proven, now, was_refused, is_fine, is_matched) in [
            (false, &one, false, true, true),
            (false, &none, false, true, true),
            (false, &two, false, false, true),
            (false, &one, true, true, false),
            (false, &none, true, false, true),
            (true, &one, false, true, true),
            (true, &two, false, true, false),
            (true, &one, true, true, false),
            (true, &none, true, true, false),
        ] {
            let marks = Marks::default();
            if is_proven {
                marks.prove();
            }
            let checked = marks.check("x", &one, now, was_refused);
            assert_eq!(checked.is_ok(), is_fine, "{is_proven} {now} {was_refused}");
            assert_eq!(marks.matched(Some(&one)).is_some(), is_matched, "{is_proven} {now} {was_refused}");
        }
    }
}
