//! What the console of a guest shows about its progress.
//!
//! Bytes in, signs out: it reads nothing itself and keeps a bounded number of lines.

use std::collections::VecDeque;

use regex::Regex;

/// A pattern that matches when systemd offers login prompts or has reached its boot target, under the names
/// of its versions, and a login prompt itself.
pub const READY: &str =
    r"Reached target .*([Mm]ulti-[Uu]ser|[Gg]raphical|Login Prompts)|Startup finished in |(^|[ -~])login: ?$";

/// The last lines of the guest, kept for messages.
const TAIL_LINES: usize = 20;
/// The last bytes of a line that are kept. A guest may print without ever ending one, and systemd writes one
/// over and over while it waits for a job.
const LINE_BYTES: usize = 4096;
/// The stages of a boot, in their order, each with the words of its first line. Before the kernel come lines
/// of firmware and boot loader. An initramfs of systemd welcomes its user too, and says what it is.
const STAGES: [(&str, &[&str]); 3] = [
    ("kernel", &["Linux version "]),
    ("initramfs", &["Run /init as", "Run /headstart/init as"]),
    ("init", &["Welcome to "]),
];
const OF_INITRAMFS: &str = "nitramfs";
/// The message of a kernel that gives up.
const PANIC: &str = "Kernel panic - not syncing";
/// Messages of systemd and of the shells of Debian's initramfs when they wait for a user.
const EMERGENCY: [&str; 3] =
    ["You are in emergency mode", "Cannot open access to console, the root account is locked", "(initramfs)"];

/// A console message that decides about the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A stage of the boot has begun: `kernel`, `initramfs` or `init`.
    Stage(&'static str),
    /// The pattern for ready matched.
    Ready,
    /// The kernel gave up, in this line.
    Panic(String),
    /// Init gave up, in this line.
    Emergency(String),
    /// A program waits for input behind a prompt.
    Prompt,
}

/// Watches a console.
#[derive(Debug)]
pub struct Console {
    ready: Option<Regex>,
    prompt: Option<Regex>,
    /// The prompt at the end of this line was reported.
    has_prompted: bool,
    line: Vec<u8>,
    tail: VecDeque<String>,
    /// Stages that have begun, or were passed over.
    stages: usize,
    /// A kernel that gives up prints a page about its state, which would push out the lines that led to it.
    gave_up: bool,
}

impl Console {
    /// Watches for a line that matches `ready`. Lines are matched without their escape sequences. An
    /// unfinished line, such as a prompt, is matched as far as it has come.
    #[must_use]
    pub fn new(ready: Regex) -> Self {
        Self {
            ready: Some(ready),
            prompt: None,
            has_prompted: false,
            line: Vec::new(),
            tail: VecDeque::new(),
            stages: 0,
            gave_up: false,
        }
    }

    /// Reports each unfinished line that matches `prompt` as well, once.
    #[must_use]
    pub fn with_prompt(self, prompt: Regex) -> Self {
        Self { prompt: Some(prompt), ..self }
    }

    /// Takes what the guest printed; returns the signs in it, in order. Ready is reported once.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Sign> {
        let mut signs = Vec::new();
        let mut pieces = bytes.split(|&byte| byte == b'\n');
        let rest = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            self.extend(piece);
            let text = self.text();
            self.line.clear();
            if self.gave_up {
                continue;
            }
            self.judge(&text, true, &mut signs);
            self.has_prompted = false;
            if text.trim().is_empty() {
                continue;
            }
            if self.tail.len() == TAIL_LINES {
                self.tail.pop_front();
            }
            self.tail.push_back(text);
        }
        if !rest.is_empty() {
            self.extend(rest);
            let text = self.text();
            self.judge(&text, false, &mut signs);
        }
        signs
    }

    /// The last lines, oldest first, without escape sequences and empty ones; up to the one with which the
    /// kernel gave up, if it did.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        let unfinished = Some(self.text()).filter(|line| !self.gave_up && !line.trim().is_empty());
        self.tail.iter().cloned().chain(unfinished).collect()
    }

    fn extend(&mut self, piece: &[u8]) {
        self.line.extend_from_slice(piece);
        self.line.drain(..self.line.len().saturating_sub(LINE_BYTES));
    }

    fn text(&self) -> String {
        plain(&String::from_utf8_lossy(&self.line))
    }

    fn judge(&mut self, line: &str, is_whole: bool, signs: &mut Vec<Sign>) {
        let begins = |(_, words): &(&str, &[&str])| {
            words.iter().any(|words| line.contains(words)) && !line.contains(OF_INITRAMFS)
        };
        // Boot loaders welcome their users as well: nothing begins before the kernel.
        let next = if self.stages == 0 { &STAGES[..1] } else { &STAGES[self.stages..] };
        if let (true, Some(at)) = (is_whole, next.iter().position(begins)) {
            signs.push(Sign::Stage(STAGES[self.stages + at].0));
            self.stages += at + 1;
        }
        if self.ready.as_ref().is_some_and(|ready| ready.is_match(line)) {
            self.ready = None;
            signs.push(Sign::Ready);
        }
        let is_prompt = !is_whole && self.prompt.as_ref().is_some_and(|prompt| prompt.is_match(line));
        if is_prompt && !self.has_prompted {
            self.has_prompted = true;
            signs.push(Sign::Prompt);
        }
        // The reason for the panic is at the end of the line.
        if is_whole && line.contains(PANIC) {
            self.gave_up = true;
            signs.push(Sign::Panic(line.trim().to_owned()));
        }
        if is_whole && EMERGENCY.iter().any(|sign| line.contains(sign)) {
            signs.push(Sign::Emergency(line.trim().to_owned()));
        }
    }
}

/// `text` without escape sequences (ECMA-48: `ESC [`, parameters, one final letter; or `ESC` and one
/// character) and other control characters.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next() == Some('[') {
                characters.by_ref().find(|character| ('@'..='~').contains(character));
            }
        } else if character == '\t' || !character.is_control() {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> Console {
        Console::new(Regex::new(READY).unwrap())
    }

    #[test]
    fn systemd_and_login_prompts_are_ready_once() {
        for text in [
            "[\u{1b}[0;32m  OK  \u{1b}[0m] Reached target \u{1b}[0;1;39mmulti-user.target\u{1b}[0m - Multi-User System.\r\n",
            "[  OK  ] Reached target Graphical Interface.\n",
            "\r\nDebian GNU/Linux 12 guest tty0\r\n\r\nguest login: ",
        ] {
            let mut console = console();
            assert_eq!(console.feed(text.as_bytes()), [Sign::Ready], "{text}");
            assert_eq!(console.feed(text.as_bytes()), [], "{text}");
        }
        for text in ["Starting getty: login: tty1 is next\n", "Reached target Local File Systems\n"] {
            assert_eq!(console().feed(text.as_bytes()), [], "{text}");
        }
    }

    #[test]
    fn bytes_may_come_in_any_pieces() {
        let text = "\u{1b}[1mone\u{1b}[0m\nKernel panic - not syncing: VFS: \u{1b}[0mno root\n\nend";
        for cut in 0..text.len() {
            let mut console = console();
            let mut signs = console.feed(&text.as_bytes()[..cut]);
            signs.extend(console.feed(&text.as_bytes()[cut..]));
            assert_eq!(signs, [Sign::Panic("Kernel panic - not syncing: VFS: no root".to_owned())], "{cut}");
            assert_eq!(console.tail(), ["one", "Kernel panic - not syncing: VFS: no root"]);
        }
    }

    #[test]
    fn an_init_that_gives_up_is_heard() {
        let signs = console().feed(b"You are in emergency mode. After logging in, type\n");
        assert!(matches!(&signs[..], [Sign::Emergency(line)] if line.starts_with("You are")), "{signs:?}");
    }

    #[test]
    fn a_prompt_is_reported_once_a_line() {
        let mut console = Console::new(Regex::new("^42").unwrap()).with_prompt(Regex::new("# $").unwrap());
        let mut fed = |text: &str| console.feed(text.as_bytes());
        assert_eq!(fed("motd # \r\nroot@guest:~# "), [Sign::Prompt]);
        assert_eq!(fed("\u{1b}[6n"), []);
        assert_eq!(fed("echo 42\r\n42\r\nroot@guest:~# "), [Sign::Ready, Sign::Prompt]);
    }

    #[test]
    fn stages_begin_once() {
        let text =
            b"Welcome to GRUB!\n  Booting `Linux'\r\n[    0.000000] Linux version 6.1.0-56-amd64 (gcc)\n";
        let mut console = console();
        assert_eq!(console.feed(text), [Sign::Stage("kernel")]);
        assert_eq!(console.feed(b"[ 0.1] Linux version 6.1.0-56-amd64 (gcc)\n"), []);
        assert_eq!(console.feed(b"[ 2.1] Run /init as init process\n"), [Sign::Stage("initramfs")]);
        assert_eq!(console.feed(b"Welcome to dracut-059 (Initramfs)!\n"), []);
        assert_eq!(console.feed(b"Welcome to Debian GNU/Linux 12 (bookworm)!\n"), [Sign::Stage("init")]);
        assert_eq!(console.feed(b"Welcome to this shell\n"), []);
    }

    #[test]
    fn what_ends_a_long_line_is_seen() {
        let waits = "\r[*     ] A start job is running for a name (1s / no limit)".repeat(200);
        for end in ["\r[  OK  ] Reached target Graphical Interface.\r\n", "\rguest login: "] {
            let mut console = console();
            assert_eq!(console.feed(waits.as_bytes()), []);
            assert_eq!(console.feed(end.as_bytes()), [Sign::Ready], "{end}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut console = console();
        for _ in 0..100 {
            console.feed(&[b'x'; 1000]);
        }
        assert_eq!(console.tail()[0].len(), LINE_BYTES);
        console.feed(&b"\nline\n".repeat(1000));
        assert_eq!(console.tail().len(), TAIL_LINES);
        console.feed(&[0x1b, b'[', 0xff, 0xfe, b'\n', 0x1b]);
    }
}
