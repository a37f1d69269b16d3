//! The handshake's options, one at a time.

use super::protocol::{End, ExportInfo, MAX_READ_BYTES, Security, Session};
use super::wire::{self, info, option, option_reply, transmission};

/// The longest name that the protocol has.
const MAX_NAME_BYTES: usize = 4096;
/// Smallest and preferred request, in bytes: any will do, and blocks are what the format is made of.
const MIN_REQUEST_BYTES: u32 = 1;
const PREFERRED_REQUEST_BYTES: u32 = hs_units::BLOCK_BYTES as u32;

/// The result of an option.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// Send these bytes; the next option follows.
    Say(Vec<u8>),
    /// Send these bytes; requests follow.
    Open(Session, Vec<u8>),
    /// Send these bytes; TLS follows, and earlier options are void.
    StartTls(Vec<u8>),
    /// Send these bytes; then the connection ends.
    Abort(Vec<u8>),
    /// Nothing can be said.
    Hang(End),
}

/// What was settled by the options so far.
#[derive(Debug)]
pub(super) struct Negotiation {
    no_zeroes: bool,
    security: Security,
    structured: bool,
    /// The export that `base:allocation` was chosen for.
    allocation_of: Option<usize>,
}

impl Negotiation {
    pub(super) const fn new(no_zeroes: bool, security: Security) -> Self {
        Self { no_zeroes, security, structured: false, allocation_of: None }
    }

    /// The negotiation that begins once TLS protects it: nothing of what was said before counts.
    pub(super) const fn secured(&self) -> Self {
        Self::new(self.no_zeroes, Security::Secured)
    }

    pub(super) fn answer(&mut self, exports: &[ExportInfo], number: u32, data: &[u8]) -> Answered {
        let invalid = |why: &str| Answered::Say(reply(number, option_reply::ERR_INVALID, why.as_bytes()));
        match number {
            option::STARTTLS => self.start_tls(data),
            option::EXPORT_NAME if self.security == Security::Required => Answered::Hang(End::WithoutTls),
            _ if self.security == Security::Required && number != option::ABORT => {
                Answered::Say(reply(number, option_reply::ERR_TLS_REQD, b"this server speaks TLS only"))
            }
            option::EXPORT_NAME => self.by_name(exports, data),
            option::ABORT => Answered::Abort(reply(number, option_reply::ACK, b"")),
            option::LIST if data.is_empty() => Answered::Say(list(exports)),
            option::LIST => invalid("nothing may come with this option"),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                Answered::Say(reply(number, option_reply::ACK, b""))
            }
            option::STRUCTURED_REPLY => invalid("nothing may come with this option"),
            option::INFO | option::GO => match InfoRequest::parse(data) {
                Some(asked) => self.info(exports, number, &asked),
                None => invalid("the option's lengths do not agree"),
            },
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => match Contexts::parse(data) {
                Some(asked) => self.contexts(exports, number, &asked),
                None => invalid("the option's lengths do not agree"),
            },
            _ => Answered::Say(reply(number, option_reply::ERR_UNSUP, b"")),
        }
    }

    fn start_tls(&self, data: &[u8]) -> Answered {
        let number = option::STARTTLS;
        let say = |kind, why: &[u8]| Answered::Say(reply(number, kind, why));
        match self.security {
            Security::Off => say(option_reply::ERR_UNSUP, b""),
            Security::Secured => say(option_reply::ERR_INVALID, b"TLS is on already"),
            _ if !data.is_empty() => say(option_reply::ERR_INVALID, b"nothing may come with this option"),
            Security::Offered | Security::Required => {
                Answered::StartTls(reply(number, option_reply::ACK, b""))
            }
        }
    }

    fn session(&self, exports: &[ExportInfo], export: usize) -> Session {
        let allocation = self.allocation_of == Some(export);
        let ExportInfo { bytes, writable, .. } = exports[export];
        Session { export, bytes, writable, structured: self.structured, allocation }
    }

    /// The option of old: its answer has no header.
    fn by_name(&self, exports: &[ExportInfo], name: &[u8]) -> Answered {
        let Some(export) = find(exports, name) else { return Answered::Hang(End::NoSuchExport) };
        let mut bytes = exports[export].bytes.to_be_bytes().to_vec();
        bytes.extend(transmission::flags(self.structured, exports[export].writable).to_be_bytes());
        if !self.no_zeroes {
            bytes.extend([0; 124]);
        }
        Answered::Open(self.session(exports, export), bytes)
    }

    fn info(&self, exports: &[ExportInfo], number: u32, asked: &InfoRequest<'_>) -> Answered {
        let Some(export) = find(exports, asked.name) else {
            return Answered::Say(reply(number, option_reply::ERR_UNKNOWN, b"there is no such export"));
        };
        let shown = &exports[export];
        let mut said = Vec::new();
        let mut tell = |kind: u16, value: &[u8]| {
            let told = [&kind.to_be_bytes(), value].concat();
            said.extend(reply(number, option_reply::INFO, &told));
        };
        let flags = transmission::flags(self.structured, shown.writable);
        tell(info::EXPORT, &[&shown.bytes.to_be_bytes()[..], &flags.to_be_bytes()].concat());
        // Each once, however often it was asked for.
        if asked.wants(info::NAME) {
            tell(info::NAME, shown.name.as_bytes());
        }
        if asked.wants(info::DESCRIPTION) {
            tell(info::DESCRIPTION, shown.description.as_bytes());
        }
        if asked.wants(info::BLOCK_SIZE) {
            let sizes = [MIN_REQUEST_BYTES, PREFERRED_REQUEST_BYTES, MAX_READ_BYTES];
            tell(info::BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
        said.extend(reply(number, option_reply::ACK, b""));
        if number == option::GO {
            Answered::Open(self.session(exports, export), said)
        } else {
            Answered::Say(said)
        }
    }

    fn contexts(&mut self, exports: &[ExportInfo], number: u32, asked: &Contexts<'_>) -> Answered {
        let setting = number == option::SET_META_CONTEXT;
        if setting {
            // Whatever was chosen before is void from here on.
            self.allocation_of = None;
        }
        if !self.structured {
            let why = b"structured replies must be agreed on first";
            return Answered::Say(reply(number, option_reply::ERR_INVALID, why));
        }
        let Some(export) = find(exports, asked.export) else {
            return Answered::Say(reply(number, option_reply::ERR_UNKNOWN, b"there is no such export"));
        };
        let name = wire::ALLOCATION_CONTEXT.as_bytes();
        let all = !setting && (asked.queries.is_empty() || asked.queries.contains(&&b"base:"[..]));
        let mut said = Vec::new();
        if all || asked.queries.contains(&name) {
            let id = if setting { wire::ALLOCATION_ID } else { 0 };
            said = reply(number, option_reply::META_CONTEXT, &[&id.to_be_bytes(), name].concat());
            if setting {
                self.allocation_of = Some(export);
            }
        }
        said.extend(reply(number, option_reply::ACK, b""));
        Answered::Say(said)
    }
}

/// The answer to an option that is too long to be looked at.
pub(super) fn too_big(option: u32) -> Vec<u8> {
    reply(option, option_reply::ERR_TOO_BIG, b"the option is too long")
}

/// The export of this name; the empty name is the first's.
fn find(exports: &[ExportInfo], name: &[u8]) -> Option<usize> {
    let named = exports.iter().position(|export| export.name.as_bytes() == name);
    named.or_else(|| (name.is_empty() && !exports.is_empty()).then_some(0))
}

fn list(exports: &[ExportInfo]) -> Vec<u8> {
    let mut said = Vec::new();
    for export in exports {
        let name = export.name.as_bytes();
        let told = [&(name.len() as u32).to_be_bytes(), name, export.description.as_bytes()].concat();
        said.extend(reply(option::LIST, option_reply::SERVER, &told));
    }
    said.extend(reply(option::LIST, option_reply::ACK, b""));
    said
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(wire::OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// What `NBD_OPT_INFO` and `NBD_OPT_GO` carry.
struct InfoRequest<'a> {
    name: &'a [u8],
    kinds: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let (name, rest) = text(data)?;
        let (count, kinds) = rest.split_first_chunk::<2>()?;
        (kinds.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(Self { name, kinds })
    }

    fn wants(&self, kind: u16) -> bool {
        self.kinds.chunks_exact(2).any(|asked| asked == kind.to_be_bytes())
    }
}

/// What `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT` carry.
struct Contexts<'a> {
    export: &'a [u8],
    queries: Vec<&'a [u8]>,
}

impl<'a> Contexts<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let (export, rest) = text(data)?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        let count = u32::from_be_bytes(*count);
        let mut queries = Vec::new();
        for _ in 0..count {
            let query;
            (query, rest) = text(rest)?;
            queries.push(query);
        }
        rest.is_empty().then_some(Self { export, queries })
    }
}

/// A text with its length before it, and what follows.
fn text(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_NAME_BYTES { None } else { rest.split_at_checked(length) }
}
