"""Layers and bricks of kernels in a graph, with the trace of its capture and without, beside each other and beside the period
that period.py finds in their order.
"""

import re
from collections import Counter

import period
from reference import WORK, events_of
from shown import SHARED, imported, kernels, told

PAIRS = [
    ("vllm_decode_full.graph_execution.json.gz", "vllm_decode_full.graph_capture.json.gz"),
    ("sglang_Qwen3-8B_decode.json.gz", "sglang_decode.capture_bs32.json.gz"),
]


def in_file(path):
    """The kernels of a file in the order of time, and whether each is of a graph's launch."""
    events = events_of(path)
    graphs = {event["args"]["correlation"] for event in events if "GraphLaunch" in str(event["name"])}
    work = [event for event in events if event.get("cat") in WORK and event["name"] != "Marker"]
    found = [
        {"name": event["name"], "start": event["begin"], "ns": event["end"] - event["begin"],
         "is_of_graph": event["args"].get("correlation") in graphs}
        for event in work
    ]
    return sorted(found, key=lambda kernel: (kernel["start"], kernel["ns"], kernel["name"]))


def share(of, among):
    return 100 * sum(of) / max(sum(among), 1)


def are_known(shown):
    """Time of kernels whose brick isn't their own name, for want of a line in the table."""
    return [kernel["ns"] for kernel in shown if kernel["brick"] and not kernel["name"].startswith(kernel["brick"].rstrip("…"))]


def covered(what, shown, file):
    """Rows of how much of the time has a layer and a brick."""
    all_of = [kernel["ns"] for kernel in file]
    graph = [kernel["ns"] for kernel in file if kernel["is_of_graph"]]
    of_graph = [kernel for kernel, of in zip(shown, file) if of["is_of_graph"]]
    layered = [kernel["ns"] for kernel in shown if kernel["layer"] is not None]
    in_graph = [kernel["ns"] for kernel in of_graph if kernel["layer"] is not None]
    rows = []
    for of, within, among in (
        ("layers of the time in the graph's launch", in_graph, graph),
        ("bricks of the time in the graph's launch", are_known(of_graph), graph),
        ("bricks of all device time", are_known(shown), all_of),
    ):
        rows.append((f"{what}: {of}, 95 % or more", "", f"{share(within, among):.2f} %", share(within, among) >= 95))
    # As high as it can be: the head and the embedding are in no layer.
    text = f"{share(layered, all_of):.2f} % (the graph's launch is {share(graph, all_of):.2f} %)"
    apart = [kernel["name"][:60] for kernel, of in zip(shown, file) if kernel["layer"] is not None and not of["is_of_graph"]]
    text = f"{len(apart)} {', '.join(apart)}"
    rows.append((f"{what}: kernels with a layer that were launched by themselves, not in the graph", 0, text, not apart))
    rows.append((f"{what}: layers of all device time, not judged", "", text, True))
    return rows


def agree(what, one, other, least=99):
    """A row of how many kernels have the same layer both ways, of those that have one in either."""
    pairs = [(a, b) for a, b in zip(one, other) if a is not None or b is not None]
    same = sum(a == b for a, b in pairs)
    percent = 100 * same / max(len(pairs), 1)
    is_right = bool(pairs) and percent >= least
    return (f"{what}, {least} % or more", "", f"{same} of {len(pairs)} kernels, {percent:.2f} %", is_right)


# Kernels of attention, once a call, of which the files don't tell how many keys they see: vLLM's operation doesn't say whether it
# has a window, and gpt-oss has one in every second layer; SGLang's step has no sums.
ATTENTION = ("kernel_unified_attention", "paged_attention_ll4mi_QKV")


def without_work(found, file):
    """A row of the attentions that are said to have no work, and the kernels of theirs in the file."""
    ours = sum(any(name in kernel["name"] for name in ATTENTION) and kernel["is_of_graph"] for kernel in file)
    lacks = [lack["reason"] for lack in found["imported"]["lacks"]]
    said = [re.match(r"work of attention \((\d+) calls?\): ", reason) for reason in lacks]
    theirs = sum(int(match[1]) for match in said if match)
    return ("attentions whose work the files don't tell", ours, theirs, ours == theirs > 0)


def of_pair(trace, capture, folder):
    file = in_file(trace)
    ways, rows = {}, []
    for way, options in (("with its capture", ["--capture", capture]), ("without", [])):
        found = imported(folder / f"{trace.name}-{len(options)}", trace, *options)
        shown = kernels(found["devices"][0], found["names"])
        first = file[0]["start"] - shown[0]["start"] if shown else 0
        alike = [(a["name"], a["start"] - first, a["ns"]) for a in file] == [(b["name"], b["start"], b["ns"]) for b in shown]
        rows.append((f"{way}: kernels as in the file", len(file), len(shown), alike))
        if not alike:
            return rows
        ways[way] = shown
        if options:
            rows.append(without_work(found, file))
        rows += covered(way, shown, file)
    with_it, without = ways.values()
    of_graph = [at for at, kernel in enumerate(file) if kernel["is_of_graph"]]
    layers = {way: [shown[at]["layer"] for at in of_graph] for way, shown in ways.items()}
    rows.append(agree("the same layer both ways", *layers.values()))
    same = sum(with_it[at]["brick"] == without[at]["brick"] for at in of_graph)
    differ = Counter(
        f"{with_it[at]['brick']} for {without[at]['brick']}" for at in of_graph
        if with_it[at]["brick"] != without[at]["brick"])
    others = ", ".join(f"{count} {what}" for what, count in differ.most_common(4)) or "none"
    told_of = f"{same} of {len(of_graph)}; others with the capture: {others}"
    rows.append(("the same brick both ways, not judged", "", told_of, True))
    by_period, length, times, together = period.layers([file[at]["name"] for at in of_graph])
    rows.append(("a period", "", f"{length} kernels × {times:.1f}, {together} layers in it", length > 0))
    for way, found in layers.items():
        inside = [(a, b) for a, b in zip(by_period, found) if a is not None]
        rows.append(agree(f"{way}: the layer that the period tells", *zip(*inside)) if inside else (way, "", "no layer", False))
        rows.append(agree(f"{way}: and those of which one alone tells a layer", by_period, found, least=95))
    return rows


def check(folder):
    wrong = 0
    for trace, capture in PAIRS:
        if not (SHARED / trace).is_file():
            print(f"skipped: {trace} isn't here")
            continue
        wrong += told(trace, of_pair(SHARED / trace, SHARED / capture, folder))
    return wrong
