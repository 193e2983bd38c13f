"""Divides the time of requests by itself, from a profile.json, and holds `brickscope requests --json` to it.

    requests.py PROFILE.json REQUESTS.json

It cuts an interval at each begin and end of a pass, and asks of each piece which passes run in its middle.
"""

import bisect
import collections
import json
import sys


NOBODY = 0xFFFFFFFF


def piece_of(parts, request, is_tied):
    if not is_tied and any(part["request"] == NOBODY for part in parts):
        return "unattributed"
    own = any(part["request"] == request for part in parts)
    others = {part["kind"] for part in parts if part["request"] != request}
    beside = {(): "", ("prompt",): "prompts", ("decode",): "decode", ("decode", "prompt"): "both"}[tuple(sorted(others))]
    if own:
        return f"own-beside-{beside}" if beside else "own-alone"
    return f"other-{beside}" if beside else "unattributed"


# Where passes run at once, an own one counts, then one of others.
ORDER = ["own-alone", "own-beside-prompts", "own-beside-decode", "own-beside-both"]
ORDER += ["other-prompts", "other-decode", "other-both", "unattributed"]


def main():
    profile, told = (json.load(open(path, encoding="utf-8")) for path in sys.argv[1:])
    parts = collections.defaultdict(list)
    for part in profile.get("parts", []):
        parts[part["pass"]].append(part)
    passes = sorted((of["start_ns"], of["start_ns"] + of["wall_ns"], of["serial"]) for of in profile["passes"])
    tied = {part["request"] for all in parts.values() for part in all}
    starts = [start for start, _, _ in passes]
    longest = max((end - start for start, end, _ in passes), default=0)
    idle = "unattributed" if profile["dropped"]["passes"] or not passes else "between"

    def divided(request, begin, end):
        sums = collections.Counter()
        received = profile["requests"][request].get("received_ns")
        if received is not None and received > begin:
            sums["receiving"] = min(received, end) - begin
            begin = min(received, end)
        admitted = profile["requests"][request].get("admitted_ns")
        if admitted is not None and admitted > begin:
            sums["queue"] = min(admitted, end) - begin
            begin = min(admitted, end)
        near = passes[bisect.bisect_left(starts, begin - longest) : bisect.bisect_left(starts, end)]
        cuts = {begin, end} | {at for start, stop, _ in near for at in (start, stop) if begin < at < end}
        cuts = sorted(cuts)
        for left, right in zip(cuts, cuts[1:]):
            now = [parts[serial] for start, stop, serial in near if start <= left and right <= stop]
            running = [piece_of(of, request, request in tied) for of in now]
            sums[min(running, key=ORDER.index) if running else idle] += right - left
        return {name: ns for name, ns in sums.items() if ns}

    intervals = 0
    for number, (request, of) in enumerate(zip(profile["requests"], told["requests"], strict=True)):
        ends = request.get("tokens_ns", []) + ([request["ended_ns"]] if "ended_ns" in request else [])
        begin = request["arrived_ns"]
        for end, interval in zip(ends, of["intervals"], strict=True):
            mine = divided(number, begin, end)
            theirs = interval["pieces"]
            if mine != theirs or sum(mine.values()) != end - begin:
                sys.exit(f"{request['id']}, {begin} to {end}: {mine}, not {theirs}")
            begin, intervals = end, intervals + 1
    if intervals == 0:
        sys.exit("there is no interval")
    print(f"{intervals} intervals of {len(profile['requests'])} requests")


main()
