"""Reads Chrome traces by a schema, checks that slices nest, and holds them to the profile.

    chrome_trace.py PROFILE.json TRACE.json…
"""

import bisect
import collections
import decimal
import itertools
import json
import pathlib
import sys

import jsonschema

from expected import APART_NS, Profile, nests, same

SCHEMA = json.loads(pathlib.Path(__file__).with_name("chrome-trace.schema.json").read_text())


def nanoseconds(micros):
    nanos = decimal.Decimal(micros) * 1000
    if nanos != nanos.to_integral_value():
        sys.exit(f"{micros} µs are no whole nanoseconds")
    return int(nanos)


def lie_in_slices(path, ends, tracks):
    """Ends the check where an end of an arrow is in no slice of its track: viewers draw it from slices."""
    spans = {}
    for place, found in tracks.items():
        # With the latest end of what began so far, the slices being sorted by their begin.
        found = sorted(found)
        latest = list(itertools.accumulate((start + duration for start, duration in found), max))
        spans[place] = [start for start, _ in found], latest
    for place, at in ends:
        starts, latest = spans.get(place, ([], []))
        nth = bisect.bisect_right(starts, at)
        if nth == 0 or latest[nth - 1] < at:
            sys.exit(f"{path}: the arrow at {at} ns on thread {place} is in no slice")


def main(profile_path, *paths):
    profile = Profile(profile_path)
    slices, positions, flows, n_events = collections.Counter(), [], 0, 0
    with_rows, launches = collections.Counter(), collections.Counter()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        # As floating point for the schema, and to the digit for the times.
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))
        trace = json.loads(text, parse_float=decimal.Decimal)
        named, tracks = set(), collections.defaultdict(list)
        begun, ended, ends = collections.Counter(), collections.Counter(), []
        points, arrows, moments = collections.Counter(), collections.Counter(), {}
        for event in trace["traceEvents"]:
            n_events += 1
            place = (event["pid"], event.get("tid"))
            if event["ph"] == "M":
                named.add((event["name"], *place) if "tid" in event else (event["name"], event["pid"]))
            elif event["ph"] == "X":
                start, duration = nanoseconds(event["ts"]), nanoseconds(event["dur"])
                tracks[place].append((start, duration))
                if event["cat"] == "launch":
                    points[place, start] += 1
                elif event["cat"] != "hand-off":
                    slices[event["cat"], event["name"], start, duration] += 1
                if ("thread_name", *place) not in named or ("process_name", event["pid"]) not in named:
                    sys.exit(f"{path}: nothing names the thread of {event}")
                if "row" in event["args"]:
                    work = tuple(event["args"].get(key) for key in ("pass", "layer", "elements", "flops", "bytes"))
                    with_rows[event["args"]["row"], start, duration, work] += 1
            elif event["ph"] in "sf":
                (begun if event["ph"] == "s" else ended)[event["id"]] += 1
                ends.append((place, nanoseconds(event["ts"])))
                moments.setdefault(event["id"], {})[event["ph"]] = ends[-1]
                flows += event["ph"] == "f"
            elif event["ph"] == "C" and event["name"] == "tokens in the KV cache":
                positions.append((nanoseconds(event["ts"]), float(event["args"]["tokens"])))
        for place, found in tracks.items():
            nests(f"{path}, thread {place}", found)
        lie_in_slices(path, ends, tracks)
        for flow, at in moments.items():
            if at["s"][1] > at["f"][1] + APART_NS:
                sys.exit(f"{path}: the arrow {flow} leads back from {at['s']} to {at['f']}")
            if at["s"] in points:
                arrows[at["s"]] += 1
        for point, n in points.items():
            launches[point[1], True] += arrows[point]
            launches[point[1], False] += n - arrows[point]
        same(f"{path}: flows that begin and that end", begun, ended)
        same(f"{path}: version", trace["otherData"]["brickscope"], profile.json["brickscope_version"])
    same("slices", slices, profile.slices())
    rows = collections.Counter()
    for _, _, row, span in profile.spans():
        work = tuple(span[key] for key in ("pass", "layer", "elements", "flops", "bytes"))
        rows[row, span["start_ns"], span["duration_ns"], work] += 1
    same("rows", with_rows, rows)
    same("launches", +launches, profile.launch_points())
    same("positions", sorted(positions), profile.positions())
    print(f"{len(paths)} parts, {n_events} events, {flows} flows")


if __name__ == "__main__":
    main(*sys.argv[1:])
