//! The result of one story, as text and as JSON.

use hs_trace::Profile;

use super::turns::Tally;

pub(super) struct StoryResult<Outcome> {
    pub(super) outcome: Outcome,
    pub(super) tallies: Vec<Tally>,
    pub(super) profile: Profile,
    /// For people.
    pub(super) text: String,
}
