//! A trace for Perfetto: native track events.
//!
//! Each input is a process; each of its processes has tracks, as many as it had requests in flight at once,
//! so that requests that overlap lie side by side. A request is a slice with its queueing and its service
//! inside, and with its stage and its files as annotations. Stages are slices of a track of their own.
//!
//! Messages and their numbers are those of protos/perfetto/trace/ in Perfetto's source, as far as they are
//! used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use hs_units::Nanos;
use prost::Message;

use super::kind_name;
use crate::model::Stage;
use crate::recording::{Recording, Request, StageFile};

/// Number of the packets in `Trace`, the outermost message.
const PACKET: u32 = 1;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    process_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    r#type: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
}

/// Files of one request that are named.
const MOST_FILES: usize = 16;
/// All events are of one sequence.
const SEQUENCE: u32 = 1;

/// The requests of all recordings.
pub(crate) fn perfetto(recordings: &[Recording]) -> Vec<u8> {
    let mut writer = Writer::default();
    for (recording, pid) in recordings.iter().zip(1..) {
        writer.recording(recording, pid);
    }
    writer.bytes
}

#[derive(Default)]
struct Writer {
    /// Packets, one behind another: so the trace is never in memory twice.
    bytes: Vec<u8>,
    tracks: u64,
}

impl Writer {
    fn recording(&mut self, recording: &Recording, pid: i32) {
        let process = ProcessDescriptor { pid: Some(pid), process_name: Some(recording.name.clone()) };
        let parent = self.track(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() });
        self.stages(&recording.stages, parent);
        let requests = whole(&recording.requests);
        for (number, process) in recording.processes.iter().enumerate() {
            let of_it = requests.iter().filter(|whole| whole.request.process as usize == number);
            let name = match (process.name.as_str(), process.pid) {
                ("", _) => "requests".to_owned(),
                (name, None) => name.to_owned(),
                (name, Some(pid)) => format!("{name} {pid}"),
            };
            for (slot, requests) in slots(of_it) {
                let name = Some(format!("{name}, in flight {}", slot + 1));
                let parent_uuid = Some(parent);
                let track = self.track(TrackDescriptor { name, parent_uuid, ..TrackDescriptor::default() });
                for Whole { request, parts } in requests {
                    let of = recording.requests[parts.clone()].iter().map(|part| part.of(recording));
                    self.request(request, of, track);
                }
            }
        }
        if let Some(ready_s) = recording.ready_s {
            self.event(EventType::Instant, Nanos::from_secs_f64(ready_s), parent, Some("ready"), Vec::new());
        }
    }

    fn track(&mut self, track: TrackDescriptor) -> u64 {
        self.tracks += 1;
        let track_descriptor = Some(TrackDescriptor { uuid: Some(self.tracks), ..track });
        self.put(&TracePacket { track_descriptor, ..TracePacket::default() });
        self.tracks
    }

    fn stages(&mut self, stages: &[Stage], parent: u64) {
        if stages.is_empty() {
            return;
        }
        let (name, parent_uuid) = (Some("stages".to_owned()), Some(parent));
        let track = self.track(TrackDescriptor { name, parent_uuid, ..TrackDescriptor::default() });
        for Stage { name, from_s, to_s } in stages {
            let [from, to] = [from_s, to_s].map(|at_s| Nanos::from_secs_f64(*at_s));
            self.event(EventType::SliceBegin, from, track, Some(name), Vec::new());
            self.event(EventType::SliceEnd, to, track, None, Vec::new());
        }
    }

    fn request<'a>(&mut self, request: &Request, of: impl Iterator<Item = &'a StageFile>, track: u64) {
        let note = |name: &str, value| DebugAnnotation {
            uint_value: Some(value),
            name: Some(name.to_owned()),
            ..DebugAnnotation::default()
        };
        let mut notes = vec![note("offset", request.bytes.offset), note("bytes", request.bytes.len)];
        for (StageFile { stage, file }, number) in of.take(MOST_FILES).zip(1..) {
            let named = match number {
                1 => vec![("stage".to_owned(), stage), ("file".to_owned(), file)],
                _ => vec![(format!("file {number}"), file)],
            };
            let known = named.into_iter().filter(|(_, value)| !value.is_empty());
            notes.extend(known.map(|(name, value)| DebugAnnotation {
                string_value: Some(value.clone()),
                name: Some(name),
                ..DebugAnnotation::default()
            }));
        }
        let issued = request.at + request.queued;
        self.event(EventType::SliceBegin, request.at, track, Some(kind_name(request.kind)), notes);
        if request.queued > Nanos::ZERO {
            self.event(EventType::SliceBegin, request.at, track, Some("queued"), Vec::new());
            self.event(EventType::SliceEnd, issued, track, None, Vec::new());
            self.event(EventType::SliceBegin, issued, track, Some("service"), Vec::new());
            self.event(EventType::SliceEnd, request.ended(), track, None, Vec::new());
        }
        self.event(EventType::SliceEnd, request.ended(), track, None, Vec::new());
    }

    fn put(&mut self, packet: &TracePacket) {
        prost::encoding::message::encode(PACKET, packet, &mut self.bytes);
    }

    fn event(
        &mut self,
        kind: EventType,
        at: Nanos,
        track: u64,
        name: Option<&str>,
        debug_annotations: Vec<DebugAnnotation>,
    ) {
        let track_event = TrackEvent {
            debug_annotations,
            r#type: Some(kind.into()),
            track_uuid: Some(track),
            categories: name.map(|_| "io".to_owned()).into_iter().collect(),
            name: name.map(str::to_owned),
        };
        self.put(&TracePacket {
            timestamp: Some(at.0),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(track_event),
            track_descriptor: None,
        });
    }
}

/// A request with the bytes of all its parts, and where these are.
struct Whole {
    request: Request,
    parts: Range<usize>,
}

/// Each request once.
fn whole(requests: &[Request]) -> Vec<Whole> {
    let mut found: Vec<Whole> = Vec::with_capacity(requests.len());
    for (at, request) in requests.iter().enumerate() {
        match found.last_mut().filter(|_| request.is_part) {
            Some(head) => {
                head.request.bytes.len += request.bytes.len;
                head.parts.end = at + 1;
            }
            None => found.push(Whole { request: *request, parts: at..at + 1 }),
        }
    }
    found
}

/// Requests by the lowest slot that was free when they arrived; they are in order of arrival.
fn slots<'a>(requests: impl Iterator<Item = &'a Whole>) -> BTreeMap<u32, Vec<&'a Whole>> {
    let mut found: BTreeMap<u32, Vec<&Whole>> = BTreeMap::new();
    let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let mut busy: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
    for whole in requests {
        let request = &whole.request;
        while let Some(Reverse((_, slot))) = busy.peek().filter(|Reverse((end, _))| *end <= request.at) {
            free.push(Reverse(*slot));
            busy.pop();
        }
        let slot = free.pop().map_or(busy.len() as u32, |Reverse(slot)| slot);
        busy.push(Reverse((request.ended(), slot)));
        found.entry(slot).or_default().push(whole);
    }
    found
}
