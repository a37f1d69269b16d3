//! A device that is read on a thread of its own: one that does not answer keeps no other from being found.
//!
//! A device that is opened while the kernel is still adding it has no number there yet, and the kernel has a
//! module loaded for that number (`blk_request_module`, block/genhd.c). The program that loads it lies on the
//! root, whose reads wait for the medium: opening the medium would wait for the medium. So what takes long is
//! begun once more.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// A reading that takes longer is begun once more. A drive that starts to turn takes longer, too: the kernel
/// has what it reads twice in memory.
pub(crate) const LONG: Duration = Duration::from_secs(2);
/// As many readings of a device are under way at most.
const MOST: usize = 3;

/// A reading under way.
pub(crate) struct Reading<T> {
    path: PathBuf,
    read: fn(&Path) -> io::Result<T>,
    begun: usize,
    last: Instant,
    answers: (Sender<io::Result<T>>, Receiver<io::Result<T>>),
}

impl<T: Send + 'static> Reading<T> {
    /// Begins to `read` what is at `path`.
    pub(crate) fn begin(path: &Path, read: fn(&Path) -> io::Result<T>) -> Self {
        let (path, answers) = (path.to_owned(), channel());
        let mut reading = Self { path, read, begun: 0, last: Instant::now(), answers };
        reading.once_more();
        reading
    }

    fn once_more(&mut self) {
        let (path, read, answer) = (self.path.clone(), self.read, self.answers.0.clone());
        self.begun += 1;
        self.last = Instant::now();
        let thread = std::thread::Builder::new().name("device".to_owned());
        // What is read after another reading has answered is of no use.
        let begun = thread.spawn(move || drop(answer.send(read(&path))));
        if let Err(error) = begun {
            let _ = self.answers.0.send(Err(error));
        }
    }

    /// What was read, if that is so within `patience`.
    pub(crate) fn poll(&mut self, patience: Duration) -> Option<io::Result<T>> {
        match self.answers.1.recv_timeout(patience) {
            Ok(read) => return Some(read),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if self.begun < MOST && self.last.elapsed() >= LONG {
            log::info!("{} does not answer: it is opened once more", self.path.display());
            self.once_more();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_read_once_more() {
        let place = tempfile::tempdir().expect("a folder");
        let [path, right] = ["device", "right"].map(|name| place.path().join(name));
        // Nothing writes to it, so that who opens it waits.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("a pipe");
        let mut reading = Reading::begin(&path, |path| std::fs::read(path));
        assert!(reading.poll(Duration::ZERO).is_none());
        std::fs::write(&right, "it").expect("written");
        std::fs::rename(&right, &path).expect("put there");
        let read = std::iter::repeat_with(|| reading.poll(Duration::from_millis(20))).flatten().next();
        assert_eq!(read.expect("an answer").expect("read"), b"it");
    }

    #[test]
    fn an_error_is_an_answer() {
        let mut reading = Reading::begin(Path::new("/no/such/device"), |path| std::fs::read(path));
        let read = std::iter::repeat_with(|| reading.poll(LONG)).flatten().next().expect("an answer");
        assert_eq!(read.expect_err("none").kind(), io::ErrorKind::NotFound);
    }
}
