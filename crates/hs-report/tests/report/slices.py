"""Prints what Perfetto's own classes find in a trace: processes, and each track's slices with their depths."""

import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

processes, names, parents, tracks, total, files = {}, {}, {}, {}, 0, {}
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        if track.HasField("process"):
            processes[track.uuid] = track.process.process_name
        else:
            names[track.uuid], parents[track.uuid] = track.name, track.parent_uuid
assert all(parent in processes for parent in parents.values()), parents

# Events of one time stay in the order of the file.
events = [packet for packet in trace.packet if packet.HasField("track_event")]
events.sort(key=lambda packet: packet.timestamp)
open_slices = {uuid: [] for uuid in names}
for packet in events:
    assert packet.trusted_packet_sequence_id != 0
    event = packet.track_event
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        stack = open_slices[event.track_uuid]
        slices = tracks.setdefault(names[event.track_uuid], [])
        slices.append([event.name, packet.timestamp, None, len(stack)])
        stack.append(slices[-1])
        texts = {note.name: note.string_value for note in event.debug_annotations if note.string_value}
        if texts:
            files[packet.timestamp] = texts
        total += sum(note.uint_value for note in event.debug_annotations if note.name == "bytes")
    elif event.type == TrackEvent.TYPE_SLICE_END:
        open_slices[event.track_uuid].pop()[2] = packet.timestamp
assert not any(open_slices.values()), "slices without an end"
json.dump({"processes": list(processes.values()), "tracks": tracks, "bytes": total, "files": files}, sys.stdout)
