//! QEMU's monitor: requests and answers as lines of JSON (QMP) on a socket of ours, to which QEMU connects.
//!
//! A guest that has broken out of its VMM may write anything there: what comes is bounded, and means no more
//! than that the guest fails.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

use crate::line_socket::LineSocket;
use crate::network::NETWORK;
use crate::resumable::BALLOON;
use crate::{Guest, GuestError};

/// The longest message: the list of machines has some 20 KiB.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Free memory that the guest keeps while its free pages are taken: it must not begin to drop its page cache.
const KEPT_FREE_BYTES: u64 = 16 << 20;
/// How long a guest may take to say how much memory is free: its driver is asked every second.
const STATS_PATIENCE: Duration = Duration::from_secs(3);
/// So long the balloon may stand still before it is taken to be as large as it will be.
const BALLOON_PATIENCE: Duration = Duration::from_secs(2);
/// A guest may change it again and again; it is not waited for longer than this.
const BALLOON_LIMIT: Duration = Duration::from_secs(60);
/// How often both are asked for.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// The name under which QEMU keeps a descriptor that it was given.
const GIVEN: &str = "state";

/// A socket for the monitor of one guest.
#[derive(Debug)]
pub struct MonitorSocket(LineSocket);

impl MonitorSocket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(path: PathBuf) -> Result<Self, GuestError> {
        LineSocket::listen(path).map(Self).map_err(failed("listen to"))
    }

    /// Where QEMU connects to.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Waits until the QEMU of `guest` has connected. `patience` is also how long each answer may take.
    ///
    /// # Errors
    /// When it ends before it has, or does not in time.
    pub fn accept(&self, guest: &mut Guest, patience: Duration) -> Result<Monitor, GuestError> {
        let stream = self.0.accept(guest, patience)?.map_err(failed("reach"))?;
        stream.set_read_timeout(Some(patience)).map_err(failed("reach"))?;
        let mut monitor = Monitor { messages: BufReader::new(stream), statuses: Vec::new() };
        // Its greeting; then it takes commands.
        monitor.receive()?;
        monitor.execute("qmp_capabilities", json!({}))?;
        Ok(monitor)
    }
}

/// The monitor of a running QEMU.
#[derive(Debug)]
pub struct Monitor {
    messages: BufReader<UnixStream>,
    /// What it said of its migration, and was not asked for yet.
    statuses: Vec<String>,
}

impl Monitor {
    /// Gives a command, and returns its result.
    ///
    /// # Errors
    /// When QEMU refuses it, or is gone.
    pub fn execute(&mut self, command: &'static str, arguments: Value) -> Result<Value, GuestError> {
        self.send(command, arguments, &[])
    }

    /// The version, as `7.2.22`.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn version(&mut self) -> Result<String, GuestError> {
        let answer = self.execute("query-version", json!({}))?;
        let part = |name: &str| answer["qemu"][name].as_u64().unwrap_or_default();
        Ok(format!("{}.{}.{}", part("major"), part("minor"), part("micro")))
    }

    /// The full name of the machine that `alias` stands for in this version.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn machine_of(&mut self, alias: &str) -> Result<String, GuestError> {
        let answer = self.execute("query-machines", json!({}))?;
        let mut machines = answer.as_array().into_iter().flatten();
        let found = machines.find(|machine| machine["alias"] == alias);
        Ok(found.and_then(|machine| machine["name"].as_str()).unwrap_or(alias).to_owned())
    }

    /// Makes holes of the guest's free pages in the file of its memory: a balloon takes them, and gives them
    /// back empty. Returns how many bytes it had; `None` of a guest without a driver for it.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn empty_free_pages(&mut self, memory_bytes: u64) -> Result<Option<u64>, GuestError> {
        let Some(free_bytes) = self.free_bytes()? else { return Ok(None) };
        let least = memory_bytes.saturating_sub(free_bytes.saturating_sub(KEPT_FREE_BYTES));
        let left = self.inflate(least)?;
        self.inflate(memory_bytes)?;
        Ok(Some(memory_bytes.saturating_sub(left)))
    }

    /// What the guest's driver says.
    fn free_bytes(&mut self) -> Result<Option<u64>, GuestError> {
        let path = format!("/machine/peripheral/{BALLOON}");
        let poll = json!({ "path": path, "property": "guest-stats-polling-interval", "value": 1 });
        self.execute("qom-set", poll)?;
        let began = Instant::now();
        while began.elapsed() < STATS_PATIENCE {
            let stats = self.execute("qom-get", json!({ "path": path, "property": "guest-stats" }))?;
            let free = stats["stats"]["stat-free-memory"].as_u64().filter(|&free| free != u64::MAX);
            if stats["last-update"].as_u64() != Some(0) && free.is_some() {
                return Ok(free);
            }
            std::thread::sleep(ASK_EVERY);
        }
        Ok(None)
    }

    /// Has the guest keep `wanted` bytes. Returns what it has when that no longer changes.
    fn inflate(&mut self, wanted: u64) -> Result<u64, GuestError> {
        self.execute("balloon", json!({ "value": wanted }))?;
        let began = Instant::now();
        let (mut last, mut changed) = (0, began);
        loop {
            let actual = self.execute("query-balloon", json!({}))?["actual"].as_u64().unwrap_or_default();
            if actual != last {
                (last, changed) = (actual, Instant::now());
            }
            let is_over = changed.elapsed() > BALLOON_PATIENCE || began.elapsed() > BALLOON_LIMIT;
            if actual == wanted || is_over {
                return Ok(actual);
            }
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Stops the guest, and takes away what its network card is connected to: connections and leases would be
    /// saved with it. The guest does not see that, if the card is connected again before it goes on.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn unplug_network(&mut self) -> Result<(), GuestError> {
        self.execute("stop", json!({}))?;
        self.execute("netdev_del", json!({ "id": NETWORK }))?;
        Ok(())
    }

    /// Connects the network card of a guest that was saved without its network.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn plug_network_in(&mut self) -> Result<(), GuestError> {
        self.execute("set_link", json!({ "name": NETWORK, "up": true }))?;
        Ok(())
    }

    /// Stops the guest, and writes the state of its devices to `file`. Its memory is in a file already.
    ///
    /// # Errors
    /// When QEMU cannot; the message is QEMU's.
    pub fn save_devices(&mut self, file: BorrowedFd<'_>) -> Result<(), GuestError> {
        self.leave_shared_memory_out()?;
        self.execute("stop", json!({}))?;
        self.send("getfd", json!({ "fdname": GIVEN }), &[file])?;
        self.execute("migrate", json!({ "uri": format!("fd:{GIVEN}") }))?;
        self.wait_migrated()
    }

    /// Loads what [`save_devices`](Self::save_devices) wrote into a QEMU that waits for it
    /// (`-incoming defer`). The guest does not run yet.
    ///
    /// # Errors
    /// When QEMU cannot; the message is QEMU's.
    pub fn load_devices(&mut self, file: BorrowedFd<'_>) -> Result<(), GuestError> {
        self.leave_shared_memory_out()?;
        self.send("getfd", json!({ "fdname": GIVEN }), &[file])?;
        self.execute("migrate-incoming", json!({ "uri": format!("fd:{GIVEN}") }))?;
        self.wait_migrated()
    }

    /// Lets the guest go on.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn go_on(&mut self) -> Result<(), GuestError> {
        self.execute("cont", json!({}))?;
        Ok(())
    }

    fn leave_shared_memory_out(&mut self) -> Result<(), GuestError> {
        let on = |name: &str| json!({ "capability": name, "state": true });
        // Events tell the end of a migration, so that it need not be asked for.
        let capabilities = [on("x-ignore-shared"), on("events")];
        self.execute("migrate-set-capabilities", json!({ "capabilities": capabilities }))?;
        Ok(())
    }

    fn wait_migrated(&mut self) -> Result<(), GuestError> {
        loop {
            for status in std::mem::take(&mut self.statuses) {
                match status.as_str() {
                    "completed" => return Ok(()),
                    "failed" | "cancelled" => {
                        let command = "migration";
                        return Err(GuestError::MonitorRefused { command, why: status });
                    }
                    _ => {}
                }
            }
            self.receive()?;
        }
    }

    fn send(
        &mut self,
        command: &'static str,
        arguments: Value,
        files: &[BorrowedFd<'_>],
    ) -> Result<Value, GuestError> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        let mut stream = self.messages.get_ref();
        if files.is_empty() {
            stream.write_all(line.as_bytes()).map_err(failed("write to"))?;
        } else {
            // The first bytes carry the descriptor.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(files));
            let bytes = [IoSlice::new(line.as_bytes())];
            let sent = sendmsg(stream.as_fd(), &bytes, &mut control, SendFlags::NOSIGNAL);
            let sent = sent.map_err(|errno| failed("write to")(errno.into()))?;
            stream.write_all(&line.as_bytes()[sent..]).map_err(failed("write to"))?;
        }
        loop {
            let mut answer = self.receive()?;
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
            if let Some(error) = answer.get("error") {
                let why = error["desc"].as_str().unwrap_or("it gives no reason").to_owned();
                return Err(GuestError::MonitorRefused { command, why });
            }
        }
    }

    /// The next message. What it says of a migration is noted.
    fn receive(&mut self) -> Result<Value, GuestError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.messages).take(MESSAGE_BYTES);
        bounded.read_until(b'\n', &mut line).map_err(failed("read"))?;
        if !line.ends_with(b"\n") {
            return Err(failed("read")(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let message: Value =
            serde_json::from_slice(&line).map_err(|error| failed("understand")(error.into()))?;
        if message["event"] == "MIGRATION"
            && let Some(status) = message["data"]["status"].as_str()
        {
            self.statuses.push(status.to_owned());
        }
        Ok(message)
    }
}

fn failed(action: &'static str) -> impl FnOnce(std::io::Error) -> GuestError {
    move |source| GuestError::Monitor { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that answers with these lines, whatever it is asked.
    fn answering(lines: &[&str]) -> (Monitor, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in lines {
            theirs.write_all(line.as_bytes()).unwrap();
            theirs.write_all(b"\n").unwrap();
        }
        (Monitor { messages: BufReader::new(ours), statuses: Vec::new() }, theirs)
    }

    const MIGRATED: &str = r#"{"event": "MIGRATION", "data": {"status": "completed"}}"#;

    #[test]
    fn events_come_at_any_time() {
        let done = r#"{"return": {}}"#;
        let (mut monitor, mut asked) = answering(&[done, done, done, MIGRATED, done]);
        let file = std::fs::File::open("/dev/null").unwrap();
        monitor.save_devices(file.as_fd()).unwrap();
        drop(monitor);
        let mut text = String::new();
        asked.read_to_string(&mut text).unwrap();
        let asked: Vec<Value> =
            serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
        let commands: Vec<&str> = asked.iter().map(|asked| asked["execute"].as_str().unwrap()).collect();
        assert_eq!(commands, ["migrate-set-capabilities", "stop", "getfd", "migrate"]);
        assert_eq!(asked[3]["arguments"]["uri"], "fd:state");
    }

    #[test]
    fn free_pages_are_taken_and_given_back() {
        let done = r#"{"return": {}}"#;
        let stats = r#"{"return": {"stats": {"stat-free-memory": 83886080}, "last-update": 7}}"#;
        let actual = |mib: u64| format!(r#"{{"return": {{"actual": {}}}}}"#, mib << 20);
        let (small, full) = (actual(64), actual(128));
        let (mut monitor, asked) = answering(&[done, stats, done, &small, done, &full]);
        assert_eq!(monitor.empty_free_pages(128 << 20).unwrap(), Some(64 << 20));
        drop(monitor);
        let text = std::io::read_to_string(asked).unwrap();
        let taken = r#"{"arguments":{"value":67108864},"execute":"balloon"}"#;
        let given = r#"{"arguments":{"value":134217728},"execute":"balloon"}"#;
        assert!(text.find(taken).unwrap() < text.find(given).unwrap(), "{text}");
    }

    #[test]
    fn versions_and_machines_are_read() {
        let (mut monitor, _asked) = answering(&[
            r#"{"return": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "x"}}"#,
            r#"{"return": [{"name": "none"}, {"name": "pc-i440fx-7.2", "alias": "pc"}]}"#,
        ]);
        assert_eq!(monitor.version().unwrap(), "7.2.22");
        assert_eq!(monitor.machine_of("pc").unwrap(), "pc-i440fx-7.2");
    }

    #[test]
    fn refusals_nonsense_and_ends_are_errors() {
        let says = |line: &str| {
            let (mut monitor, theirs) = answering(&[line]);
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            monitor.execute("cont", json!({})).unwrap_err().to_string()
        };
        let refused = says(r#"{"error": {"class": "GenericError", "desc": "not now"}}"#);
        assert!(refused.contains("cont") && refused.contains("not now"), "{refused}");
        assert!(says("{").contains("understand"));
        assert!(says(r#"{"event": "STOP"}"#).contains("read"));
        let (mut monitor, _asked) = answering(&[r#"{"event": "MIGRATION", "data": {"status": "failed"}}"#]);
        assert!(monitor.wait_migrated().unwrap_err().to_string().contains("failed"));
    }
}
