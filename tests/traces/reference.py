"""What a trace of PyTorch's profiler says of devices, worked out in Python from the file alone: without brickscope, its
tables and its names of bricks. Of files of Nsight Systems and rocprofv3, which recorded.py reads, the same without steps.

A step is what the file calls so: a range of the host named `execute_…` or `step[…]`, or else `ProfilerStep#…`; of ranges
inside of each other the outer one. A kernel or copy belongs to the step in which the host launched it: the call with the
same `correlation` began within it. Kernels count to that step however long they run after its end on the host.

For each device: `span` is from the first kernel of a step to its last on any stream, summed over the steps; `busy` is the
union of kernels and copies in it, `gaps` what is left. Without steps, the same of the whole file. Copies and fills count as
kernels, since the device is at work; what HIP calls `Marker` is no work.
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from decimal import Decimal

import recorded

WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset", "concurrent_kernel"}
SERVER = re.compile(r"execute_(\d+_)?context_.*_generation_|step\[\w+ bs=")


class NotRead(Exception):
    """Why a file isn't a trace that this reads."""


def open_any(path):
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def events_of(path):
    try:
        # Decimals, so that no digit of a time is lost.
        read = json.loads(open_any(path), parse_float=Decimal, strict=False)
    except ValueError as error:
        raise NotRead(f"not JSON: {error}") from error
    if isinstance(read, dict):
        read = read.get("traceEvents")
    if not isinstance(read, list):
        raise NotRead("no list of events")
    events = []
    for event in read:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        if not all(isinstance(event.get(key), (int, Decimal)) for key in ("ts", "dur")):
            continue
        event["begin"] = nanos(event["ts"])
        event["end"] = nanos(Decimal(event["ts"]) + Decimal(event["dur"]))
        if event["end"] >= event["begin"]:
            events.append(event)
    if not any(event.get("cat") in WORK for event in events):
        raise NotRead("no kernel of a device in it")
    return events


def nanos(micros):
    return int((Decimal(micros) * 1000).to_integral_value())


def steps_of(events):
    ranges = [event for event in events if event.get("cat") in ("user_annotation", "Operator", "cpu_op")]
    named = [event for event in ranges if SERVER.match(str(event["name"]))]
    # A step of vLLM that computes nothing is none.
    named = [event for event in named if not re.search(r"context_0\(.*\)_generation_0\(|step\[IDLE", event["name"])]
    steps = named or [event for event in ranges if str(event["name"]).startswith("ProfilerStep#")]
    outer = []
    for step in sorted(steps, key=lambda step: (step["begin"], -step["end"])):
        if not outer or step["begin"] >= outer[-1]["end"]:
            outer.append(step)
    return outer


def union(intervals):
    """How long at least one of them lasts, and from the first begin to the last end."""
    busy, until = 0, None
    for begin, end in sorted(intervals):
        if until is None or begin > until:
            busy += end - begin
            until = end
        elif end > until:
            busy += end - until
            until = end
    return busy, until - min(begin for begin, _ in intervals)


def is_number(value):
    return isinstance(value, int) and value > 0


def place(event, key, field):
    value = event.get("args", {}).get(key, event.get(field))
    digits = re.search(r"\d+", str(value))
    return int(digits.group()) if digits else 0


def called_at(events):
    """When the host made the call of each number."""
    called = {}
    for event in events:
        number = event.get("args", {}).get("correlation")
        is_call = str(event.get("cat", "")).endswith(("_runtime", "_driver")) or event.get("cat") == "Runtime"
        if is_call and is_number(number):
            called.setdefault(number, event["begin"])
    return called


def step_of(event, steps, called):
    """The number of the step in which an event of a device was launched."""
    at = called.get(event.get("args", {}).get("correlation"))
    inside = [number for number, step in enumerate(steps) if at is not None and step["begin"] <= at < step["end"]]
    return inside[0] if inside else None


def figures(path):
    """By device: steps, busy, span and gaps in nanoseconds, and for each kernel how long it ran and how often."""
    found = recorded.work(path)
    if found is not None:
        devices, sums = found
        return {
            device: of_device([(begin, end, name, 0) for begin, end, name in work], False, sums and sums[device])
            for device, work in sorted(devices.items())
        }
    events = events_of(path)
    steps, called = steps_of(events), called_at(events)
    first = min(event["begin"] for event in events if event["begin"] > 0)
    devices = {}
    for event in events:
        if event.get("cat") not in WORK or event["name"] == "Marker":
            continue
        if event["begin"] == 0 and event["end"] < first:
            continue
        step = step_of(event, steps, called) if steps else 0
        devices.setdefault(place(event, "device", "pid"), []).append((event["begin"], event["end"], event["name"], step))
    return {device: of_device(work, bool(steps)) for device, work in sorted(devices.items())}


def of_device(work, has_steps, sums=None):
    """The figures of a device of which each begin, end, name and step is given, and the sums of names, if a database told."""
    of_step = defaultdict(list)
    nanoseconds = Counter()
    for begin, end, name, step in work:
        if step is not None:
            of_step[step].append((begin, end))
        nanoseconds[name] += end - begin
    unions = [union(intervals) for intervals in of_step.values()]
    busy, span = sum(busy for busy, _ in unions), sum(span for _, span in unions)
    nanoseconds = nanoseconds if sums is None else sums
    return {
        "steps": len(of_step) if has_steps else 0,
        "busy": busy,
        "span": span,
        "gaps": span - busy,
        "top": nanoseconds.most_common(5),
        "kernels": nanoseconds,
    }


def rates_of_bench(path):
    """Of llama-bench's lines, each test's name and the rate that the file states."""
    rates = []
    for line in open_any(path).decode().splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "avg_ts" not in row:
            raise NotRead("lines without avg_ts: not llama-bench's")
        test = f"pp{row['n_prompt']}" if row["n_prompt"] else ""
        test += ("+" if test and row["n_gen"] else "") + (f"tg{row['n_gen']}" if row["n_gen"] else "")
        test += f" @ d{row['n_depth']}" if row.get("n_depth") else ""
        rates.append((test, row["avg_ts"]))
    if not rates:
        raise NotRead("no line of llama-bench in it")
    return rates
