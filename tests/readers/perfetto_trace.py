"""Reads Perfetto traces by the published schema, which PyPI's `perfetto` has, and holds them to the profile.

    perfetto_trace.py PROFILE.json TRACE.pftrace…
"""

import collections
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

from expected import APART_NS, Profile, nests, same

CLEARED, NEEDS_STATE = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED, TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


def known_only(message, at="Trace"):
    """Ends the check at a field that the schema doesn't have, however deep."""
    unknown = UnknownFieldSet(message)
    if len(unknown):
        sys.exit(f"{at} has the field {unknown[0].field_number}, which the schema does not know")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                known_only(inner, f"{at}.{field.name}")


class Part:
    """A file, read packet by packet."""

    def __init__(self, path):
        self.path = path
        self.slices = collections.Counter()
        self.annotations = []
        self.by_track = collections.defaultdict(list)
        self.open = collections.defaultdict(list)
        self.last = collections.defaultdict(int)
        self.tracks = {}
        self.begun, self.ended = collections.Counter(), collections.Counter()
        # When each flow begins and ends, and launches with whether a flow begins there.
        self.begins, self.ends = {}, {}
        self.launches = collections.Counter()
        self.counters = collections.defaultdict(list)
        self.facts = None
        self.words = {"event_categories": {}, "event_names": {}, "debug_annotation_names": {}, "debug_annotation_string_values": {}}
        self.default_clock = None
        self.clocks = []
        trace = Trace()
        with open(path, "rb") as file:
            trace.ParseFromString(file.read())
        known_only(trace)
        is_clear = False
        for packet in trace.packet:
            if packet.sequence_flags & CLEARED:
                is_clear = True
                self.default_clock = packet.trace_packet_defaults.timestamp_clock_id
            if packet.sequence_flags & NEEDS_STATE and not is_clear:
                self.fail("a packet needs a state that nothing before it set up")
            self.packet(packet)
        for track, slices in self.open.items():
            if slices:
                self.fail(f"slices of track {track} never end: {slices}")
        for track, slices in self.by_track.items():
            nests(f"{path}, track {track}", slices)
        self.check_clocks()
        same(f"{path}: flows that begin and that end", self.begun, self.ended)
        for flow, begin in self.begins.items():
            if begin > self.ends[flow] + APART_NS:
                self.fail(f"flow {flow} leads back from {begin} to {self.ends[flow]}")

    def fail(self, why):
        sys.exit(f"{self.path}: {why}")

    def packet(self, packet):
        for kind, words in self.words.items():
            for entry in getattr(packet.interned_data, kind):
                text = entry.str.decode() if kind == "debug_annotation_string_values" else entry.name
                if words.setdefault(entry.iid, text) != text:
                    self.fail(f"the number {entry.iid} has two texts among the {kind}")
        if packet.HasField("clock_snapshot"):
            self.clocks.append({clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            if track.uuid in self.tracks:
                self.fail(f"track {track.uuid} is described twice")
            if track.parent_uuid and track.parent_uuid not in self.tracks:
                self.fail(f"track {track.uuid} is in {track.parent_uuid}, which is not there")
            self.tracks[track.uuid] = track
        if packet.HasField("track_event"):
            self.event(packet.timestamp, packet.track_event)

    def event(self, at, event):
        track = event.track_uuid
        if track not in self.tracks:
            self.fail(f"an event is on track {track}, which nothing described")
        if event.type == TrackEvent.TYPE_COUNTER:
            if not self.tracks[track].HasField("counter"):
                self.fail(f"track {track} is no counter")
            self.counters[self.tracks[track].name].append((at, event.double_counter_value))
            return
        for flow in event.flow_ids:
            self.begun[flow] += 1
            self.begins[flow] = at
        for flow in event.terminating_flow_ids:
            self.ended[flow] += 1
            self.ends[flow] = at
        if event.type == TrackEvent.TYPE_INSTANT:
            if self.category(event) == "run":
                self.facts = self.annotated(event)
            if self.category(event) == "launch":
                self.launches[at, bool(event.flow_ids)] += 1
            return
        # Viewers sort by time, and keep the order of what is at the same time: so the order of the file
        # is that of the slices.
        if at < self.last[track]:
            self.fail(f"track {track} goes back from {self.last[track]} to {at}")
        self.last[track] = at
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            name = self.words["event_names"][event.name_iid]
            self.open[track].append((self.category(event), name, at, self.annotated(event)))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            if not self.open[track]:
                self.fail(f"an end on track {track} has no begin")
            kind, name, start, annotations = self.open[track].pop()
            self.slices[kind, name, start, at - start] += 1
            self.annotations.append((kind, name, start, at - start, annotations))
            self.by_track[track].append((start, at - start))
        else:
            self.fail(f"an event has the type {event.type}")

    def category(self, event):
        (iid,) = event.category_iids
        return self.words["event_categories"][iid]

    def annotated(self, event):
        values = {}
        for entry in event.debug_annotations:
            name = entry.name or self.words["debug_annotation_names"][entry.name_iid]
            kind = entry.WhichOneof("value")
            value = getattr(entry, kind)
            values[name] = self.words["debug_annotation_string_values"][value] if kind == "string_value_iid" else value
        return values

    def check_clocks(self):
        if self.default_clock and not any(self.default_clock in clocks and 3 in clocks for clocks in self.clocks):
            self.fail(f"no snapshot lays the clock {self.default_clock} beside CLOCK_MONOTONIC")


def main(profile_path, *paths):
    profile = Profile(profile_path)
    parts = [Part(path) for path in paths]
    slices = sum((part.slices for part in parts), collections.Counter())
    same("slices", slices, profile.slices() + profile.request_slices())
    tracks = {track.name for part in parts for track in part.tracks.values()}
    if missing := {request["id"] for request in profile.json.get("requests", []) if request.get("tokens_ns")} - tracks:
        sys.exit(f"requests without a track: {missing}")
    for part in parts:
        for kind, name, start, duration, annotations in part.annotations:
            if kind == "request" and name not in ("before the engine", "queue"):
                pieces = sum(ns for key, ns in annotations.items() if key not in ("token", "ending"))
                same(f"the pieces of {name} at {start}", pieces, duration)

    # To the nanosecond, as the profile itself has added them up.
    if profile.is_whole():
        phases = {}
        for device, stream, one in profile.passes():
            phases[device, stream, one["serial"]] = one["phase"]
        sums = collections.Counter()
        rows = collections.defaultdict(list)
        launched = {(d, s, launch["span"]): launch for d, s, launch, _ in profile.launches()}
        for device, stream, row, span in profile.spans():
            rows[span["kind"], row, span["start_ns"], span["duration_ns"]].append((device, stream, span))
        for part in parts:
            for kind, name, start, duration, annotations in part.annotations:
                if kind in ("brick", "kernel"):
                    device, stream, span = rows[kind, annotations["row"], start, duration].pop()
                    sums[phases.get((device, stream, span["pass"])), kind, name] += duration
                    for key in ("layer", "pass", "elements", "flops", "bytes", "source"):
                        same(f"{key} of {kind} {name!r}", annotations.get(key), span[key])
                    issued = launched.get((device, stream, annotations["row"]), {}).get("issued_ns")
                    same(f"launch of {kind} {name!r}", annotations.get("issued_ns"), issued)
                    if issued is not None:
                        same(f"delay of {kind} {name!r}", annotations["start_after_launch_ns"], start - issued)
        same("sums", +sums, +profile.sums())

    anchors = [{128: a["at_ns"], 3: a["monotonic_ns"], 5: a["monotonic_raw_ns"]} for a in profile.json["clock"].get("anchors", [])]
    for part in parts:
        same("clock snapshots", part.clocks[: len(anchors)], anchors)
        if part.facts is None or part.facts["brickscope"] != profile.json["brickscope_version"]:
            part.fail("nothing says what the run was")
    found = sorted(value for part in parts for value in part.counters["tokens in the KV cache"])
    same("positions", found, profile.positions())
    same("launches", sum((part.launches for part in parts), collections.Counter()), profile.launch_points())
    dependencies = len(profile.json.get("dependencies", [])) + sum(
        len(device.get("dependencies", [])) for device in profile.json.get("devices", [])
    )
    flows = sum(sum(part.begun.values()) for part in parts)
    if flows < dependencies:
        sys.exit(f"{flows} flows for {dependencies} hand-offs")
    print(f"{len(parts)} parts, {sum(slices.values())} slices, {flows} flows")


if __name__ == "__main__":
    main(*sys.argv[1:])
