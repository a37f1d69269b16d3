//! The server's side of the protocol without any I/O: bytes in, events out.
//!
//! ```text
//! greeting ─► client's flags ─► options ─► requests ─► end
//! ```
//!
//! [`Protocol::handle_bytes`] takes received bytes, cut anywhere. [`Protocol::poll`] gives the next thing to
//! do; a caller without room for another answer does not call it. Between two calls the protocol keeps one
//! unfinished option or request, and the bytes that were not parsed yet.

use std::sync::Arc;

use super::options::{self, Answered, Negotiation};
use super::wire::{self, Reply, command, errno};

/// The longest read: what clients take for granted where nothing else was said.
pub const MAX_READ_BYTES: u32 = 32 << 20;
/// The longest option that is looked at: a name of 4096 bytes and several contexts as long.
pub(super) const MAX_OPTION_BYTES: u32 = 32 << 10;
/// The longest write.
pub const MAX_WRITE_BYTES: u32 = MAX_READ_BYTES;
/// Bytes of a write that are given at a time: what one connection holds of it.
pub const WRITE_PART_BYTES: u32 = 512 << 10;
/// The longest answer in one chunk, where a client insists on that.
pub const MAX_UNCUT_BYTES: u32 = 1 << 20;

/// A disk as the protocol sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name; the first export also answers to the empty one.
    pub name: String,
    /// For a person.
    pub description: String,
    /// Size of the disk.
    pub bytes: u64,
    /// Whether it takes writes.
    pub writable: bool,
}

/// What a conversation has to do with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// There is none.
    #[default]
    Off,
    /// The client may ask for it.
    Offered,
    /// A client that has not asked for TLS learns nothing of the exports.
    Required,
    /// TLS protects everything that is sent.
    Secured,
}

/// A request for bytes of the disk, which lie within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How to answer.
    pub reply: Reply,
    /// First byte.
    pub offset: u64,
    /// Bytes; not zero.
    pub len: u32,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Send these bytes.
    Send(Vec<u8>),
    /// The bytes that were sent so far were the last ones in the clear: a TLS handshake follows, and what it
    /// carries is what the client says from now on.
    StartTls,
    /// The client has chosen this export: requests follow.
    Opened(usize),
    /// Send bytes of the disk, in one piece or, if the reply is structured and `uncut` is not set, in any.
    Read {
        /// The range and the handle of the reply.
        request: Request,
        /// In one piece.
        uncut: bool,
    },
    /// Say what is allocated, from the offset on.
    Allocation {
        /// The range and the handle of the reply.
        request: Request,
        /// One extent only.
        one: bool,
    },
    /// These bytes will be read soon.
    Cache(Request),
    /// Write these bytes, which are a part of what the request brings; the parts follow one another.
    Write {
        /// The whole range, and the handle of the reply.
        request: Request,
        /// Where this part goes.
        offset: u64,
        /// What is written there.
        bytes: Vec<u8>,
        /// The reply waits until it is on the medium.
        lasting: bool,
    },
    /// Make the range zero.
    Zero {
        /// The range and the handle of the reply.
        request: Request,
        /// How.
        zeroing: Zeroing,
        /// The reply waits until it is on the medium.
        lasting: bool,
    },
    /// Answer when all that was answered before is on the medium.
    Flush(Reply),
    /// The client sends nothing more, or is not listened to any more.
    Ended(End),
}

/// How a range becomes zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroing {
    /// What it held is not needed any more.
    Trim,
    /// It reads as zeros, and may be a hole.
    Holes,
    /// It reads as zeros, and is no hole.
    Zeros,
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// The client said so.
    #[error("the client is done")]
    Done,
    /// It is not an NBD client, or uses the protocol from before 2011.
    #[error("the client's greeting has unknown flags {flags:#x}")]
    Flags {
        /// What it sent.
        flags: u32,
    },
    /// What should be an option or a request is none.
    #[error("expected the magic number {expected:#x}, found {found:#x}")]
    Magic {
        /// Of an option or a request.
        expected: u64,
        /// The number that was received.
        found: u64,
    },
    /// The client wants an export by the old option, which knows no other answer to a wrong name.
    #[error("the client asked for an export that does not exist")]
    NoSuchExport,
    /// The same option, in the clear, where only TLS is spoken.
    #[error("the client did not ask for TLS")]
    WithoutTls,
    /// An attacker on the network added bytes that would count as protected.
    #[error("{bytes} bytes came in the clear between the request for TLS and its answer")]
    Injected {
        /// How many.
        bytes: usize,
    },
}

#[derive(Debug)]
enum Phase {
    Greeting,
    ClientFlags,
    Options(Negotiation),
    /// TLS was agreed on, which has been said.
    StartingTls(Negotiation),
    Requests(Session),
    Ended,
}

/// What the handshake settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) export: usize,
    pub(super) bytes: u64,
    pub(super) writable: bool,
    pub(super) structured: bool,
    /// `base:allocation` was negotiated.
    pub(super) allocation: bool,
}

/// One conversation.
#[derive(Debug)]
pub struct Protocol {
    exports: Arc<[ExportInfo]>,
    security: Security,
    phase: Phase,
    input: Input,
    /// A write whose bytes have not all come.
    writing: Option<Writing>,
}

/// A write that comes.
#[derive(Clone, Copy, Debug)]
struct Writing {
    request: Request,
    lasting: bool,
    /// Where its next part goes.
    next: u64,
}

impl Writing {
    /// Parts end at multiples of their size, so that all but the first and the last are whole blocks.
    fn part_bytes(&self) -> u32 {
        let end = self.request.offset + u64::from(self.request.len);
        let boundary = (self.next / u64::from(WRITE_PART_BYTES) + 1) * u64::from(WRITE_PART_BYTES);
        (boundary.min(end) - self.next) as u32
    }
}

impl Protocol {
    /// A conversation that has not begun, about these exports; there is at least one.
    #[must_use]
    pub fn new(exports: Arc<[ExportInfo]>, security: Security) -> Self {
        Self { exports, security, phase: Phase::Greeting, input: Input::default(), writing: None }
    }

    /// Takes bytes that the client sent.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        if !matches!(self.phase, Phase::Ended) {
            self.input.put(bytes);
        }
    }

    /// What is to be done next; `None` when that depends on bytes that have not come.
    pub fn poll(&mut self) -> Option<Event> {
        loop {
            let event = match &self.phase {
                Phase::Greeting => Some(self.greet()),
                Phase::ClientFlags => self.next_flags()?,
                Phase::Options(_) => self.next_option()?,
                Phase::StartingTls(_) => Some(self.start_tls()),
                Phase::Requests(session) => {
                    let session = *session;
                    self.next_request(session)?
                }
                Phase::Ended => {
                    return std::mem::take(&mut self.input.aborted).then_some(Event::Ended(End::Done));
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn greet(&mut self) -> Event {
        self.phase = Phase::ClientFlags;
        let flags = wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES;
        let mut greeting = Vec::with_capacity(18);
        greeting.extend(wire::NBD_MAGIC.to_be_bytes());
        greeting.extend(wire::OPTION_MAGIC.to_be_bytes());
        greeting.extend(flags.to_be_bytes());
        Event::Send(greeting)
    }

    /// The outer `None`, here and below, waits for bytes; the inner one has nothing to be done.
    fn next_flags(&mut self) -> Option<Option<Event>> {
        let flags = u32::from_be_bytes(*self.input.peek()?);
        let known = u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return Some(Some(self.end(End::Flags { flags })));
        }
        self.input.take(4);
        let no_zeroes = flags & u32::from(wire::FLAG_NO_ZEROES) != 0;
        self.phase = Phase::Options(Negotiation::new(no_zeroes, self.security));
        Some(None)
    }

    fn next_option(&mut self) -> Option<Option<Event>> {
        let (option, length) = match self.input.option_header()? {
            Ok(header) => header,
            Err(end) => return Some(Some(self.end(end))),
        };
        if length > MAX_OPTION_BYTES {
            // Its bytes are dropped as they come; no honest client sends so many.
            self.input.take(16);
            self.input.skip(u64::from(length));
            return Some(Some(Event::Send(options::too_big(option))));
        }
        let Phase::Options(negotiation) = &mut self.phase else { return Some(None) };
        let answered = negotiation.answer(&self.exports, option, self.input.option(length)?);
        self.input.take(16 + length as usize);
        let said = match answered {
            Answered::Say(bytes) => bytes,
            Answered::Open(session, bytes) => {
                self.phase = Phase::Requests(session);
                self.input.opened = Some(session.export);
                bytes
            }
            Answered::StartTls(bytes) => {
                self.phase = Phase::StartingTls(negotiation.secured());
                bytes
            }
            Answered::Abort(bytes) => {
                self.phase = Phase::Ended;
                self.input = Input { aborted: true, ..Input::default() };
                bytes
            }
            Answered::Hang(end) => return Some(Some(self.end(end))),
        };
        Some(Some(Event::Send(said)))
    }

    /// A client waits for the answer before it begins with TLS. Bytes that are here already came in the
    /// clear, perhaps from an attacker.
    fn start_tls(&mut self) -> Event {
        let bytes = self.input.waiting();
        if bytes > 0 {
            return self.end(End::Injected { bytes });
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::StartingTls(negotiation) => Phase::Options(negotiation),
            other => other,
        };
        Event::StartTls
    }

    fn next_request(&mut self, session: Session) -> Option<Option<Event>> {
        if let Some(export) = self.input.opened.take() {
            return Some(Some(Event::Opened(export)));
        }
        if let Some(writing) = &mut self.writing {
            let part = writing.part_bytes();
            let bytes = self.input.piece(part as usize)?.to_vec();
            self.input.take(part as usize);
            let Writing { request, lasting, next } = *writing;
            writing.next += u64::from(part);
            if writing.next == request.offset + u64::from(request.len) {
                self.writing = None;
            }
            return Some(Some(Event::Write { request, offset: next, bytes, lasting }));
        }
        Some(match Header::parse(self.input.peek()?) {
            Ok(header) => {
                self.input.take(28);
                self.request(session, &header)
            }
            Err(end) => Some(self.end(end)),
        })
    }

    /// Whether the client has chosen an export.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Requests(_))
    }

    fn end(&mut self, end: End) -> Event {
        self.phase = Phase::Ended;
        self.input = Input::default();
        Event::Ended(end)
    }

    /// A request that writes and can be done.
    fn write(&mut self, request: Request, header: &Header) -> Option<Event> {
        let lasting = header.flags & command::FLAG_FUA != 0;
        let zero = |zeroing| Some(Event::Zero { request, zeroing, lasting });
        match header.command {
            command::FLUSH => Some(Event::Flush(request.reply)),
            _ if header.len == 0 => Some(Event::Send(request.reply.done())),
            command::WRITE => {
                self.writing = Some(Writing { request, lasting, next: request.offset });
                None
            }
            command::TRIM => zero(Zeroing::Trim),
            _ if header.flags & command::FLAG_NO_HOLE != 0 => zero(Zeroing::Zeros),
            _ => zero(Zeroing::Holes),
        }
    }

    fn request(&mut self, session: Session, header: &Header) -> Option<Event> {
        let reply = Reply { cookie: header.cookie, structured: session.structured };
        let request = Request { reply, offset: header.offset, len: header.len };
        let refuse = |errno| Event::Send(reply.error(errno));
        let flags = header.flags;
        let fits = header.offset.checked_add(u64::from(header.len)).is_some_and(|end| end <= session.bytes);
        Some(match header.command {
            command::DISC => self.end(End::Done),
            command::WRITE | command::TRIM | command::WRITE_ZEROES | command::FLUSH => {
                match write_error(session, header, fits) {
                    Some(errno) => {
                        if header.command == command::WRITE {
                            self.input.skip(u64::from(header.len));
                        }
                        refuse(errno)
                    }
                    None => return self.write(request, header),
                }
            }
            command::READ => {
                let uncut = flags & command::FLAG_DF != 0;
                let known = flags & !command::FLAG_DF == 0 && (!uncut || session.structured);
                if !known || !fits || header.len > MAX_READ_BYTES {
                    refuse(errno::EINVAL)
                } else if uncut && header.len > MAX_UNCUT_BYTES {
                    refuse(errno::EOVERFLOW)
                } else if header.len == 0 {
                    Event::Send(reply.done())
                } else {
                    Event::Read { request, uncut }
                }
            }
            command::BLOCK_STATUS => {
                if flags & !command::FLAG_REQ_ONE != 0 || !session.allocation || !fits || header.len == 0 {
                    return Some(refuse(errno::EINVAL));
                }
                Event::Allocation { request, one: flags & command::FLAG_REQ_ONE != 0 }
            }
            command::CACHE if flags == 0 && fits => {
                if header.len == 0 {
                    Event::Send(reply.done())
                } else {
                    Event::Cache(request)
                }
            }
            _ => refuse(errno::EINVAL),
        })
    }
}

/// Why a request that writes is refused.
fn write_error(session: Session, header: &Header, fits: bool) -> Option<u32> {
    let known = match header.command {
        command::WRITE | command::TRIM => command::FLAG_FUA,
        command::WRITE_ZEROES => command::FLAG_FUA | command::FLAG_NO_HOLE | command::FLAG_FAST_ZERO,
        _ => 0,
    };
    if !session.writable {
        return (header.command != command::FLUSH).then_some(errno::EPERM).or(Some(errno::EINVAL));
    }
    let is_flush = header.command == command::FLUSH;
    let too_long = header.command == command::WRITE && header.len > MAX_WRITE_BYTES;
    if header.flags & !known != 0 || too_long || is_flush && (header.offset, header.len) != (0, 0) {
        return Some(errno::EINVAL);
    }
    (!fits).then_some(errno::ENOSPC)
}

struct Header {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

impl Header {
    fn parse(bytes: &[u8; 28]) -> Result<Self, End> {
        let (magic, rest) = split::<4>(bytes);
        let magic = u32::from_be_bytes(magic);
        if magic != wire::REQUEST_MAGIC {
            return Err(End::Magic { expected: wire::REQUEST_MAGIC.into(), found: magic.into() });
        }
        let (flags, rest) = split::<2>(rest);
        let (command, rest) = split::<2>(rest);
        let (cookie, rest) = split::<8>(rest);
        let (offset, rest) = split::<8>(rest);
        let (len, _) = split::<4>(rest);
        Ok(Self {
            flags: u16::from_be_bytes(flags),
            command: u16::from_be_bytes(command),
            cookie: u64::from_be_bytes(cookie),
            offset: u64::from_be_bytes(offset),
            len: u32::from_be_bytes(len),
        })
    }
}

/// The first `N` bytes, which are there: callers have counted.
fn split<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let mut first = [0; N];
    let (head, rest) = bytes.split_at(N);
    first.copy_from_slice(head);
    (first, rest)
}

/// Received bytes that were not parsed yet, and the state that follows from those that were.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    from: usize,
    /// Bytes still to come that are skipped.
    unwanted: u64,
    opened: Option<usize>,
    aborted: bool,
}

impl Input {
    fn put(&mut self, bytes: &[u8]) {
        let dropped = self.unwanted.min(bytes.len() as u64);
        self.unwanted -= dropped;
        if self.from > 0 {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
        self.bytes.extend_from_slice(&bytes[dropped as usize..]);
    }

    /// Bytes that have not been looked at.
    fn waiting(&self) -> usize {
        self.bytes.len() - self.from
    }

    fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes[self.from..].first_chunk()
    }

    /// So many bytes, when they are there.
    fn piece(&self, count: usize) -> Option<&[u8]> {
        self.bytes.get(self.from..self.from + count)
    }

    fn take(&mut self, count: usize) {
        self.from += count;
    }

    /// The next bytes are not wanted, be they here or not.
    fn skip(&mut self, count: u64) {
        let here = count.min((self.bytes.len() - self.from) as u64);
        self.from += here as usize;
        self.unwanted += count - here;
    }

    /// Number and length of the option that comes.
    fn option_header(&self) -> Option<Result<(u32, u32), End>> {
        let header: &[u8; 16] = self.peek()?;
        let (magic, rest) = split::<8>(header);
        let found = u64::from_be_bytes(magic);
        if found != wire::OPTION_MAGIC {
            return Some(Err(End::Magic { expected: wire::OPTION_MAGIC, found }));
        }
        let (option, rest) = split::<4>(rest);
        let (length, _) = split::<4>(rest);
        Some(Ok((u32::from_be_bytes(option), u32::from_be_bytes(length))))
    }

    /// What the option carries, when all of it is there.
    fn option(&self, length: u32) -> Option<&[u8]> {
        self.bytes.get(self.from + 16..self.from + 16 + length as usize)
    }
}

#[cfg(test)]
mod tests;
