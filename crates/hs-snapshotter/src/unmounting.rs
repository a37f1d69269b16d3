//! What is to be unmounted, until it is gone: each image on a thread of its own, again and again where it
//! fails. The call that asked for it waits so long and no longer, since containerd's garbage collector waits
//! for it and everything else for that.
//!
//! What a snapshotter that ends has not unmounted, the next one finds by its folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The first pause before what failed is tried again, which doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Images that are being unmounted.
#[derive(Clone, Default)]
pub(crate) struct Unmounting(Arc<UnderWay>);

#[derive(Default)]
struct UnderWay {
    /// By their keys; whether it was asked for again meanwhile.
    asked_again: Mutex<BTreeMap<String, bool>>,
    ended: Condvar,
}

impl Unmounting {
    /// Has `attempt` tried until it succeeds. While that is under way for the image `key`, it is not begun
    /// twice, but tried once more.
    pub(crate) fn begin(&self, key: &str, attempt: impl Fn() -> anyhow::Result<()> + Send + 'static) {
        {
            let mut asked_again = self.0.asked_again.lock();
            if let Some(again) = asked_again.get_mut(key) {
                *again = true;
                return;
            }
            asked_again.insert(key.to_owned(), false);
        }
        let (name, under_way) = (key.to_owned(), Arc::clone(&self.0));
        let thread = std::thread::Builder::new().name("unmount".to_owned());
        if let Err(error) = thread.spawn(move || under_way.go_on(&name, &attempt)) {
            log::warn!("an image that no snapshot uses stays mounted: {error}");
            self.0.asked_again.lock().remove(key);
        }
    }

    /// Waits until it is done; false when it is not by `end`.
    pub(crate) fn wait(&self, key: &str, end: Instant) -> bool {
        let UnderWay { asked_again, ended } = &*self.0;
        let mut asked_again = asked_again.lock();
        !ended.wait_while_until(&mut asked_again, |found| found.contains_key(key), end).timed_out()
    }
}

impl UnderWay {
    fn go_on(&self, key: &str, attempt: &impl Fn() -> anyhow::Result<()>) {
        let (mut pause, mut said) = (FIRST_PAUSE, String::new());
        loop {
            let Err(error) = attempt() else {
                let mut asked_again = self.asked_again.lock();
                if asked_again.insert(key.to_owned(), false) == Some(true) {
                    continue;
                }
                asked_again.remove(key);
                self.ended.notify_all();
                return;
            };
            let text = format!("{error:#}");
            if text != said {
                log::warn!("an image that no snapshot uses stays mounted, and is tried again: {text}");
                said = text;
            }
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn what_fails_is_tried_until_it_succeeds() {
        let (unmounting, left) = (Unmounting::default(), Mutex::new(3));
        unmounting.begin("a", move || {
            let mut left = left.lock();
            *left -= 1;
            if *left == 0 { Ok(()) } else { Err(anyhow::anyhow!("busy")) }
        });
        assert!(unmounting.wait("a", soon()));
        assert!(unmounting.wait("none", Instant::now()));
    }

    #[test]
    fn what_is_asked_for_meanwhile_is_done_after_it() {
        let unmounting = Unmounting::default();
        let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel());
        let may_go_on = Mutex::new(may_go_on);
        unmounting.begin("a", move || {
            begun.send(()).expect("heard");
            may_go_on.lock().recv().expect("told");
            Ok(())
        });
        has_begun.recv().expect("the first");
        assert!(!unmounting.wait("a", Instant::now()));
        unmounting.begin("a", || unreachable!("it is under way"));
        go_on.send(()).expect("told");
        has_begun.recv().expect("the second");
        assert!(!unmounting.wait("a", Instant::now()));
        go_on.send(()).expect("told");
        assert!(unmounting.wait("a", soon()));
    }
}
