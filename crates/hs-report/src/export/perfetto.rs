//! A trace for Perfetto: native track events.
//!
//! Each input is a process; each of its processes has tracks, as many as it had requests in flight at once,
//! so that requests that overlap lie side by side. A request is a slice with its queueing and its service
//! inside. Messages and their numbers are those of protos/perfetto/trace/ in Perfetto's source, as far as
//! they are used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use hs_units::Nanos;
use prost::Message;

use super::kind_name;
use crate::recording::{Recording, Request};

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
        let requests = whole(&recording.requests);
        for (number, process) in recording.processes.iter().enumerate() {
            let of_it = requests.iter().filter(|request| request.process as usize == number);
            let name = match (process.name.as_str(), process.pid) {
                ("", _) => "requests".to_owned(),
                (name, None) => name.to_owned(),
                (name, Some(pid)) => format!("{name} {pid}"),
            };
            for (slot, requests) in slots(of_it) {
                let name = Some(format!("{name}, in flight {}", slot + 1));
                let parent_uuid = Some(parent);
                let track = self.track(TrackDescriptor { name, parent_uuid, ..TrackDescriptor::default() });
                requests.into_iter().for_each(|request| self.request(request, track));
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

    fn request(&mut self, request: &Request, track: u64) {
        let note =
            |name: &str, value| DebugAnnotation { uint_value: Some(value), name: Some(name.to_owned()) };
        let notes = vec![note("offset", request.bytes.offset), note("bytes", request.bytes.len)];
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

/// Each request once, with the bytes of all its parts.
fn whole(requests: &[Request]) -> Vec<Request> {
    let mut found: Vec<Request> = Vec::with_capacity(requests.len());
    for request in requests {
        match found.last_mut().filter(|_| request.is_part) {
            Some(head) => head.bytes.len += request.bytes.len,
            None => found.push(*request),
        }
    }
    found
}

/// Requests by the lowest slot that was free when they arrived; they are in order of arrival.
fn slots<'a>(requests: impl Iterator<Item = &'a Request>) -> BTreeMap<u32, Vec<&'a Request>> {
    let mut found: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
    let mut free: BinaryHeap<Reverse<u32>> = BinaryHeap::new();
    let mut busy: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
    for request in requests {
        while let Some(Reverse((_, slot))) = busy.peek().filter(|Reverse((end, _))| *end <= request.at) {
            free.push(Reverse(*slot));
            busy.pop();
        }
        let slot = free.pop().map_or(busy.len() as u32, |Reverse(slot)| slot);
        busy.push(Reverse((request.ended(), slot)));
        found.entry(slot).or_default().push(request);
    }
    found
}
