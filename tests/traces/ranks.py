"""Collectives of ranks: how long each transfers and who waits, by the files alone, beside `in_collectives` of the JSON.

Of all pairs of kernels of one operation and stream, those that end at once are the same, the nearest first; clocks are as
they are in the files. The shortest time of a collective is its transfer, what a rank took more it waited.
"""

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal

from planted import Job
from shown import SHARED, imported, told

REAL = ["sampled_rank-0.json.gz", "sampled_rank-1.json.gz"]


def plain(name):
    name = name.removeprefix("nccl:").strip("_").replace("_base", "")
    return {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}.get(name, name)


def collectives(path):
    """The rank that a file is of, and of each collective operation, group, begin and end."""
    with (gzip.open if path.suffix == ".gz" else open)(path) as file:
        data = json.load(file, parse_float=Decimal)
    base = int(data.get("baseTimeNanoseconds", 0))
    times = lambda event: (base + round(event["ts"] * 1000), base + round((event["ts"] + event["dur"]) * 1000))
    around, calls, found = defaultdict(list), {}, []
    for event in data["traceEvents"]:
        if event.get("ph") == "X" and event["name"].startswith("nccl:"):
            around[event["pid"], event["tid"]].append((*times(event), event["name"]))
        if event.get("cat") == "cuda_runtime" and "correlation" in event.get("args", {}):
            calls[event["args"]["correlation"]] = event
    for event in data["traceEvents"]:
        if event.get("cat") != "kernel" or not event["name"].startswith("nccl"):
            continue
        args = event["args"]
        name, call = args.get("Collective name"), calls.get(args["correlation"])
        if not name and call:
            start, _ = times(call)
            inside = [of for begin, end, of in around[call["pid"], call["tid"]] if begin <= start < end]
            name = inside[-1] if inside else event["name"]
        group = args.get("Process Group Name", f"stream {args['stream']}")
        found.append((plain(name), group, *times(event)))
    return data["distributedInfo"]["rank"], sorted(found, key=lambda collective: collective[2])


def matched(ranks):
    """Of each collective that more than one rank has: operation, group, and begin and end by rank."""
    first_rank, first = ranks[0]
    common = {place: {first_rank: of} for place, of in enumerate(first)}
    for rank, found in ranks[1:]:
        pairs = []
        for i, (name, group, begin, end) in enumerate(first):
            for j, (other, of_group, start, stop) in enumerate(found):
                most = min(1_000_000, max(10_000, min(end - begin, stop - start) // 10))
                if (name, group) == (other, of_group) and abs(end - stop) <= most:
                    pairs.append((abs(end - stop), i, j))
        taken, used = set(), set()
        for _, i, j in sorted(pairs):
            if i not in taken and j not in used:
                taken.add(i)
                used.add(j)
                common[i][rank] = found[j]
    return [
        (of[first_rank][0], of[first_rank][1], {rank: call[2:] for rank, call in of.items()})
        for of in common.values() if len(of) > 1
    ]


def sums_of(common):
    """By operation and group, the count and the transfer; of each rank transfer and wait."""
    kinds = defaultdict(lambda: [0, 0, Counter()])
    ranks = defaultdict(lambda: [0, 0])
    for name, group, of in common:
        transfer = min(end - begin for begin, end in of.values())
        kind = kinds[name, group]
        kind[0] += 1
        kind[1] += transfer
        for rank, (begin, end) in of.items():
            kind[2][rank] += end - begin - transfer
            ranks[rank][0] += transfer
            ranks[rank][1] += end - begin - transfer
    return kinds, ranks


def real(folder):
    paths = [SHARED / name for name in REAL]
    kinds, ranks = sums_of(matched(sorted(collectives(path) for path in paths)))
    shown = imported(folder / "real", *paths)["in_collectives"]
    theirs = {(of["name"], of["group"]): of for of in shown["kinds"]}
    rows = [("operations and groups", sorted(kinds), sorted(theirs), sorted(kinds) == sorted(theirs))]
    for key, (count, transfer, waits) in sorted(kinds.items()):
        of = theirs.get(key, {"ranks": []})
        their_waits = {rank["rank"]: rank["wait_ns"] for rank in of["ranks"]}
        for what, a, b in (
            ("collectives", count, of.get("collectives")),
            ("transfer, ns", transfer, of.get("transfer_ns")),
            ("waits by rank, ns", dict(waits), their_waits),
        ):
            rows.append((f"{' of '.join(key)}: {what}", a, b, a == b))
    return rows + of_ranks(ranks, shown)


def of_ranks(expected, shown):
    theirs = {of["rank"]: [of["transfer_ns"], of["wait_ns"]] for of in shown["ranks"]}
    return [
        (f"rank {rank}: transfer and wait, ns", list(of), theirs.get(rank), list(of) == theirs.get(rank))
        for rank, of in sorted(expected.items())
    ]


def made(job, folder, straggler):
    found = imported(folder / "run", *job.write(folder / "traces"))
    shown = found["in_collectives"]
    lasts = job.lasts()
    named = shown.get("straggler")
    rows = [("collectives", len(job.collectives), shown["collectives"], len(job.collectives) == shown["collectives"])]
    rows += of_ranks(job.truth(), shown)
    theirs = {of["rank"]: of["last"] for of in shown["ranks"]}
    ours = {rank: lasts.count(rank) for rank in range(job.ranks)}
    rows.append(("how often each is last", list(ours.values()), list(theirs.values()), ours == theirs))
    rows.append(("the straggler", straggler, named and named["rank"], straggler == (named and named["rank"])))
    shifts = [(of.get("shift_ns"), of.get("shift_spread_ns")) for of in found["ranks"]["ranks"]]
    # Clocks that differ by less than can be told are one, and the scatter says so. A nanosecond is the files' last digit.
    is_near = all(
        shift is not None and abs(shift + ahead) <= max(2, spread) and spread <= 5_000
        for (shift, spread), ahead in zip(shifts, job.ahead))
    rows.append(("shifts of clocks and their scatter, ns", [-ahead for ahead in job.ahead], shifts, is_near))
    by = Counter(of.get("matched_by") for of in found["ranks"]["ranks"])
    rows.append(("matched by, not judged", "", dict(by), True))
    return rows


def check(folder):
    late = [40 if rank == 5 else rank for rank in range(8)]
    ahead = [0, 3_000_000, -2_000_000, 40_000, -7_500, 12_000_000, 500, -900_000]
    alike = [0] * 8
    sets = {
        "eight ranks, of which the sixth is slow": (Job(8, 6, 12, late, 5), 5),
        "with clocks apart": (Job(8, 6, 12, late, 5, ahead), 5),
        "with numbers and clocks apart": (Job(8, 6, 12, late, 5, ahead, is_numbered=True), 5),
        "eight ranks of which none is slow": (Job(8, 6, 12, alike, 30), None),
        "two ranks, of which the first is slow": (Job(2, 4, 4, [25, 0], 5), 0),
    }
    wrong = 0
    for number, (title, (job, straggler)) in enumerate(sets.items()):
        wrong += told(title, made(job, folder / f"set-{number}", straggler))
    if all((SHARED / name).is_file() for name in REAL):
        wrong += told("sampled_rank-0 and -1 of HolisticTraceAnalysis", real(folder))
    return wrong
