"""What a profile.json says, for readers of its exports to be held to."""

import collections
import json
import sys

# As in src/profiler.rs: the numbers of names for which there was no room.
OTHER_BRICK, OTHER_KERNEL = 4095, 4094


# The counters of two CPUs differ by some nanoseconds, and an arrow may lead from one to the other.
APART_NS = 1000


class Profile:
    """A profile's spans and passes, with names instead of numbers, of the host and of streams."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.json = json.load(file)
        self.names = self.json["names"]
        # By (device, stream); (None, None) is the host.
        self.tables = {(None, None): self.json}
        for d, device in enumerate(self.json.get("devices", [])):
            for s, stream in enumerate(device["streams"]):
                self.tables[d, s] = stream

    def spans(self):
        """(device, stream, row, span) of each, a span being its columns by name."""
        for place, table in self.tables.items():
            columns, sources = table["spans"]["columns"], table["spans"]["sources"]
            for row, cells in enumerate(table["spans"]["rows"]):
                span = dict(zip(columns, cells))
                span["source"] = {"host": "host", "host_order": "host order", "device": "device"}[sources[span["source"]]]
                span["kind"], span["name"] = self.name(span["name"])
                for work in ("elements", "flops", "bytes"):
                    span[work] = span[work] or None
                yield *place, row, span

    def passes(self):
        """(device, stream, pass) of each."""
        for place, table in self.tables.items():
            for one in table["passes"]:
                yield *place, one

    def position(self, one):
        """The position of a pass, or None where an imported file doesn't tell it."""
        imported = self.json.get("imported")
        is_told = not imported or imported["format"] == "llama-bench" and one["tokens"]
        return one["position"] if is_told or one["position"] else None

    def positions(self):
        """(start, position) of each pass, as counters have it."""
        told = ((one["start_ns"], self.position(one)) for _, _, one in self.passes())
        return sorted((start, float(position)) for start, position in told if position is not None)

    def name(self, index):
        if index is None:
            return "layer", None
        if index < len(self.names):
            return self.names[index]["kind"], self.names[index]["name"]
        if index in (OTHER_BRICK, OTHER_KERNEL):
            return "brick" if index == OTHER_BRICK else "kernel", "(other)"
        return "brick", f"#{index}"

    def known(self, index):
        return self.names[index] if index is not None and index < len(self.names) else {}

    def slices(self):
        """How often a timeline must have each slice: (kind, name, start, duration)."""
        slices = collections.Counter()
        for _, _, _, span in self.spans():
            name = span["name"]
            if span["kind"] == "layer":
                name = "layer" if span["layer"] is None else f"layer {span['layer']}"
            slices[span["kind"], name, span["start_ns"], span["duration_ns"]] += 1
        for _, _, one in self.passes():
            slices["pass", one["phase"], one["start_ns"], one["wall_ns"]] += 1
        return slices

    def request_slices(self):
        """The same of requests: the queue, and what is between tokens."""
        slices = collections.Counter()
        for request in self.json.get("requests", []):
            ends = [("first token" if n == 0 else "token", at) for n, at in enumerate(request.get("tokens_ns", []))]
            ends += [("to the end", request["ended_ns"])] if request.get("ended_ns") is not None else []
            since = request["arrived_ns"]
            for name, at in ends:
                received = min(max(request.get("received_ns", since), since), at)
                admitted = min(max(request.get("admitted_ns", received), received), at)
                if received > since:
                    slices["request", "before the engine", since, received - since] += 1
                if admitted > received:
                    slices["request", "queue", received, admitted - received] += 1
                if admitted == since or admitted < at:
                    slices["request", name, admitted, at - admitted] += 1
                since = at
        return slices

    def launches(self):
        """(device, stream, launch, span) of each, a launch being its columns by name."""
        for (d, s), table in self.tables.items():
            launches = table.get("launches", {"columns": [], "kinds": [], "rows": []})
            for cells in launches["rows"]:
                launch = dict(zip(launches["columns"], cells))
                launch["kind"] = launches["kinds"][launch["kind"]]
                yield d, s, launch, dict(zip(table["spans"]["columns"], table["spans"]["rows"][launch["span"]]))

    def launch_points(self):
        """The moments of launches that are drawn, each with whether an arrow leads from there; a graph is launched once."""
        points, graphs = collections.Counter(), set()
        for d, s, launch, span in self.launches():
            graph = (d, s, launch["issued_ns"])
            if launch["kind"] == "replayed" and graph in graphs:
                continue
            graphs.add(graph)
            points[launch["issued_ns"], launch["issued_ns"] <= span["start_ns"]] += 1
        return points

    def sums(self):
        """Nanoseconds and number by phase, kind and name, as the profile's own totals have them."""
        sums = collections.Counter()
        for table in self.tables.values():
            for total in table["totals"]:
                key = (total["phase"], total["kind"], total["name"])
                sums[key] += total["total_ns"]
        return sums

    def is_whole(self):
        """Whether every span was kept. An imported file may have had sums alone."""
        if self.json.get("imported") and not self.json["spans"]["rows"]:
            return False
        tables = self.tables.values()
        return all(table["dropped"]["spans"] + table["dropped"]["passes"] == 0 for table in tables)


def same(what, found, expected):
    """Ends the check where two collections differ."""
    if found == expected:
        return
    if isinstance(found, collections.Counter):
        missing, more = expected - found, found - expected
        sys.exit(f"{what}: missing {list(missing.items())[:5]}, and not expected {list(more.items())[:5]}")
    sys.exit(f"{what}: {found!r}, and not {expected!r}")


def nests(what, slices):
    """Ends the check where two of these (start, duration) on one track overlap without nesting."""
    open_ends = []
    for start, duration in sorted(slices, key=lambda slice: (slice[0], -slice[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and start + duration > open_ends[-1]:
            sys.exit(f"{what}: a slice from {start} for {duration} ns ends after the one around it")
        open_ends.append(start + duration)


def phase_walls(profile):
    """Nanoseconds of each phase, with what bricks outside of passes took."""
    walls = {phase["phase"]: phase["wall_ns"] for phase in profile.json["phases"]}
    outside = sum(
        total["exclusive_ns"] for total in profile.json["totals"] if total["phase"] is None and total["kind"] == "brick"
    )
    if outside:
        walls["outside of passes"] = outside
    return {name: wall for name, wall in walls.items() if wall}
