//! Starts of systems that are installed already: which pages of the mounted file system they need is
//! recorded, and at the next start these are asked for early. The disk stays as it is.
//!
//! - [`Root`]: the mounted file system, and what makes it the one that a list is of.
//! - [`KeptList`]: the list in a file, believed only when root alone can have written it.
//! - [`Started`]: the command whose start is recorded.
//! - [`Recording`]: what comes into the page cache, from the kernel's trace; merged into a list.
//! - [`Warming`]: asks for the pages of a list, in the order that the device likes.
//! - [`boot()`]: all of it, as the service of a boot does it.
//!
//! Decisions are those of `hs-accelerate`.

mod boot;
mod error;
mod kept;
mod machine;
mod places;
mod probe;
mod recording;
mod root;
mod switch;
mod warming;
mod watch;

pub use boot::{BootEnd, LastBoot, boot};
pub use error::EarlyError;
pub use kept::KeptList;
pub use machine::{is_on_battery, memory, own_processor_s};
pub use recording::{Before, Recording, Taken};
pub use root::{Root, RootKind};
pub use switch::{OnlyOne, SinceOn, Switch, at_work};
pub use warming::{Warmed, Warming};
pub use watch::{Started, Waited, Watch};
