"""Tokens per second of a server's steps, from their names and the device's kernels alone, beside what the JSON says."""

import json
import re
from collections import defaultdict

from reference import SERVER, WORK, NotRead, called_at, events_of, step_of, steps_of
from shown import SHARED, imported, told

TRACES = ["vllm_decode_full.graph_execution.json.gz", "sglang_Qwen3-8B_decode.json.gz"]


def is_step(event):
    return event.get("cat") == "user_annotation" and SERVER.match(str(event["name"])) is not None


def tokens_of(name):
    """Phase and tokens of a step by its name, or `None` if it computes nothing."""
    vllm = re.match(r"execute_(?:\d+_)?context_\d+\((?:sq)?(\d+)[^)]*\)_generation_\d+\((?:sq)?(\d+)", name)
    if vllm:
        context, generation = map(int, vllm.groups())
        return ("prefill" if context else "decode", context + generation) if context + generation else None
    sglang = re.match(r"step\[(DECODE|EXTEND|MIXED) bs=(\d+)(?: toks=(\d+))?", name)
    if sglang:
        kind, requests, tokens = sglang.groups()
        return "decode" if kind == "DECODE" else "prefill", int(requests if kind == "DECODE" else tokens)
    raise NotRead(f"no step: {name}")


def by_hand(path):
    """Of each phase: tokens, nanoseconds and what of. Steps that follow each other last to the first kernel of the next one;
    where none do, each lasts to its own last kernel. Behind a step without tokens the server had nothing to do."""
    events = events_of(path)
    steps, called = steps_of(events), called_at(events)
    of_step = defaultdict(list)
    for event in events:
        if event.get("cat") in WORK and event["name"] != "Marker":
            of_step[step_of(event, steps, called)].append(event)
    every = [event["begin"] for event in events if is_step(event) and tokens_of(event["name"]) is None]
    done = []
    for number, step in enumerate(steps):
        begin = min((event["begin"] for event in of_step[number]), default=None)
        end = max((event["end"] for event in of_step[number]), default=None)
        done.append((*tokens_of(step["name"]), begin, end, step["begin"]))
    answer = {}
    for phase in sorted({step[0] for step in done}):
        spans = [(tokens, end - begin) for of, tokens, begin, end, _ in done if of == phase and begin is not None]
        rows = [
            (tokens, after[2] - begin)
            for (of, tokens, begin, _, at), after in zip(done, done[1:])
            if of == after[0] == phase and None not in (begin, after[2]) and not any(at < idle < after[4] for idle in every)
        ]
        chosen = rows or spans
        answer[phase] = (*map(sum, zip(*chosen)), "device_steps" if rows else "device_spans")
    return answer


def rows_of(path, run, *options):
    found = imported(run, path, *options)
    rates = {rate["phase"]: rate for rate in found["rates"]}
    rows = []
    for phase, (tokens, nanos, of) in by_hand(path).items():
        ours, rate = tokens * 1e9 / nanos, rates.get(phase, {})
        theirs = rate.get("tokens_per_second")
        is_equal = theirs is not None and abs(ours - theirs) <= 1e-9 * ours and rate["of"] == of
        rows.append((f"{phase}: {tokens} tokens in {nanos} ns", f"{ours:.6f} of {of}", f"{theirs} of {rate.get('of')}", is_equal))
    rows.append(("phases with a rate", len(rows), len(rates), len(rows) == len(rates)))
    return rows


PREFILL, MIXED = "execute_context_2(700)_generation_0(0)", "execute_context_1(100)_generation_31(31)"
DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
NOTHING = "execute_context_0(0)_generation_0(0)"
# Servers that are made up. Of each step: name, begin and end on the host, begins and ends of kernels, in microseconds.
MADE = {
    "steps of turns": [
        (PREFILL, 1000, 1500, [(1200, 1850), (1900, 2210)]),
        (DECODE, 2000, 2100, [(2300, 2501.25)]),
        (MIXED, 3000, 3200, [(3100, 3350.5), (3400, 3555.25)]),
        (DECODE, 4000, 4100, [(4050, 4300.125)]),
    ],
    "steps in a row": [
        ("step[EXTEND bs=2 toks=15360]", 500, 900, [(700, 1100)]),
        *(("step[DECODE bs=8]", at, at + 90, [(at + 50 + nth, at + 120), (at + 130, at + 440)])
          for nth, at in enumerate(range(1000, 6000, 500))),
        ("step[DECODE bs=3]", 6000, 6090, [(6050, 6400)]),
    ],
    "steps with nothing to do between": [
        (PREFILL, 1000, 1500, [(1200, 1850), (1900, 2210)]),
        (NOTHING, 2300, 2310, []),
        (MIXED, 3000, 3200, [(3100, 3350.5), (3400, 3555.25)]),
        (NOTHING, 3600, 3610, []),
        (DECODE, 4000, 4100, [(4050, 4300.125)]),
    ],
}


def made(steps, path):
    events, number = [], 0
    for name, begin, end, kernels in steps:
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": end - begin})
        for nth, (start, stop) in enumerate(kernels):
            number += 1
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                           "ts": begin + 4 * (nth + 1), "dur": 2, "args": {"correlation": number}})
            events.append({"ph": "X", "cat": "kernel", "name": f"gemm_{nth}", "pid": 0, "tid": 7, "ts": start,
                           "dur": stop - start, "args": {"device": 0, "stream": 7, "correlation": number}})
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def check(folder):
    wrong = 0
    for number, (title, steps) in enumerate(MADE.items()):
        wrong += told(title, rows_of(made(steps, folder / f"steps-{number}.json"), folder / f"steps-{number}"))
    for name in TRACES:
        if (SHARED / name).is_file():
            wrong += told(name, rows_of(SHARED / name, folder / name))
    return wrong
