"""A second opinion: the reports that TraceLens (AMD, MIT licence) makes of the same files, beside what brickscope says.

    tests/traces/run second

The package `TraceLens` of PyPI is another program, so it comes from https://github.com/AMD-AGI/TraceLens, or from the folder
TRACELENS, a copy of its source. Its environment stays in target/traces. Exit code: 0, or 1 where the two differ in what both
measure, or 3 where it couldn't be fetched. What they define in two ways is printed with the reason, and not judged.
"""

import csv
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter

import ranks
from reference import union
from shown import FOLDER, SHARED, imported, kernels, told

UNREACHABLE = 3
SOURCE = "git+https://github.com/AMD-AGI/TraceLens@171dd74721ca11ec45709e5805b68ae1f65e27811"
GRAPHS = [
    ("vllm_decode_full.graph_execution.json.gz", "vllm_decode_full.graph_capture.json.gz"),
    ("sglang_Qwen3-8B_decode.json.gz", "sglang_decode.capture_bs32.json.gz"),
]
ROCPROF = "rocprofv3_908_results.json.gz"
# Times are floats of microseconds there, since 1970 or since the machine began.
APART = 1e-5


def environment():
    """The folder of its commands, or `None`."""
    folder = FOLDER / "tracelens"
    command = folder / "bin" / "TraceLens_generate_perf_report_pytorch_inference"
    if not command.is_file():
        if subprocess.run([sys.executable, "-m", "venv", folder]).returncode:
            print("skipped: python3 can't make an environment (package python3-venv)")
            return None
        source = os.environ.get("TRACELENS", SOURCE)
        if subprocess.run([folder / "bin" / "pip", "install", "--quiet", source]).returncode:
            print("skipped: TraceLens couldn't be fetched")
            return None
    return command.parent


def report(commands, name, folder, *words):
    """The tables that one of its commands writes, by name."""
    folder.mkdir(parents=True)
    line = [commands / f"TraceLens_{name}", "--output_csvs_dir", folder, *words]
    run = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=900)
    if run.returncode:
        last = run.stderr.strip().splitlines()[-1:]
        print(f"NO  TraceLens_{name} fails: {' '.join(last)}")
        return None
    tables = {}
    for path in folder.glob("*.csv"):
        with path.open(newline="") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables


def near(a, b):
    return abs(a - b) <= APART * max(abs(a), abs(b), 1)


def bricks(profile):
    sums = Counter()
    for device in profile["devices"]:
        for kernel in kernels(device, profile["names"]):
            sums[kernel["brick"]] += kernel["ns"]
    return sums


def beside(tables, name, sums):
    """Rows of its categories, then our bricks, which are finer."""
    theirs = [f"{row['op category']} {float(row['total_direct_kernel_time_ms']):.3f}" for row in tables[name]]
    ours = [f"{brick[:24]} {nanos / 1e6:.3f}" for brick, nanos in sums.most_common(9)]
    return ("categories and bricks, ms, not judged", " · ".join(theirs), " · ".join(ours), True)


def of_graph(commands, trace, capture, folder):
    captures = folder / "captures"
    captures.mkdir(parents=True)
    # Its name has to tell size and rank.
    (captures / "bs_32_rank0.json.gz").symlink_to(SHARED / capture)
    words = ["--profile_json_path", SHARED / trace, "--enable_kernel_summary", "--capture_folder", captures]
    tables = report(commands, "generate_perf_report_pytorch_inference", folder / "tables", *words)
    if tables is None:
        return [("its report", "made", "not made", False)]
    profile = imported(folder / "run", SHARED / trace, "--capture", SHARED / capture)
    timeline = {row["type"]: float(row["time ms"]) * 1e6 for row in tables["gpu_timeline"]}
    # All of this file is of one step.
    every = kernels(profile["devices"][0], profile["names"])
    busy, span = union([(kernel["start"], kernel["start"] + kernel["ns"]) for kernel in every])
    rows = [
        ("busy, ns", f"{timeline['busy_time']:.0f}", busy, near(timeline["busy_time"], busy)),
        ("from the first kernel to the last, ns", f"{timeline['total_time']:.0f}", span, near(timeline["total_time"], span)),
    ]
    sums, theirs = Counter(), Counter()
    for kernel in every:
        # It has copies apart.
        if not kernel["name"].startswith(("Memcpy", "Memset")):
            sums[kernel["name"]] += kernel["ns"]
    for row in tables["kernel_summary"]:
        theirs[row["Kernel name"]] += float(row["Kernel duration (µs)_sum"]) * 1e3
    unequal = [name for name in sums | theirs if abs(sums[name] - theirs[name]) > 1]
    rows.append(("kernels of which the sum differs", 0, f"{len(unequal)} of {len(sums)}", bool(sums) and not unequal))
    categories = {
        row["op category"]: float(row["total_direct_kernel_time_ms"]) * 1e6 for row in tables["ops_summary_by_category"]}
    ours = bricks(profile)
    norms = ours["RmsNorm"] + ours["LayerNorm"]
    rows.append(("norms, ns", f"{categories['RMSNorm']:.0f}", norms, abs(categories["RMSNorm"] - norms) < 1e-4 * norms))
    rows.append(beside(tables, "ops_summary_by_category", ours))
    return rows


def of_rocprof(commands, folder):
    tables = report(
        commands, "generate_perf_report_rocprof", folder / "tables", "--profile_json_path", SHARED / ROCPROF)
    if tables is None:
        return [("its report", "made", "not made", False)]
    profile = imported(folder / "run", SHARED / ROCPROF)
    timeline = {row["type"]: float(row["time ms"]) * 1e6 for row in tables["gpu_timeline"]}
    every = kernels(profile["devices"][0], profile["names"])
    busy, span = union([(kernel["start"], kernel["start"] + kernel["ns"]) for kernel in every])
    theirs = {row["op category"]: float(row["total_direct_kernel_time_ms"]) for row in tables["kernel_summary_by_category"]}
    ours = bricks(profile)
    all_of = sum(float(row["Total Kernel Time (ms)"]) for row in tables["kernel_summary"])
    # The column says ms and has µs.
    pairs = [(of, theirs[of] * 1e3, ours[brick]) for of, brick in (("COMM", "Communication"), ("GEMM", "MatMul"))]
    rows = [
        ("busy, ns", f"{timeline['busy_time']:.0f}", busy, near(timeline["busy_time"], busy)),
        ("all kernels, ns", f"{all_of * 1e3:.0f}", sum(ours.values()), near(all_of * 1e3, sum(ours.values()))),
        *((f"{of}, ns", f"{nanos:.0f}", brick, near(nanos, brick)) for of, nanos, brick in pairs),
        ("in all, ns, not judged: its time is that of the process, ours from the first kernel to the last",
         f"{timeline['total_time']:.0f}", span, True),
    ]
    scaled = [{**row, "total_direct_kernel_time_ms": float(row["total_direct_kernel_time_ms"]) / 1e3}
              for row in tables["kernel_summary_by_category"]]
    return rows + [beside({"of": scaled}, "of", ours)]


def of_ranks(commands, folder):
    """Each of its rows is a collective on a rank. It counts their order where files state no group, so which of two ranks are
    the same is not judged: those of one number end up to 105 ms apart."""
    words = ["--trace_glob", SHARED / "sampled_rank-*.json.gz", "--world_size", 2]
    tables = report(commands, "generate_multi_rank_collective_report_pytorch", folder / "tables", *words)
    if tables is None:
        return [("its report", "made", "not made", False)]
    profile = imported(folder / "run", *(SHARED / name for name in ranks.REAL))
    theirs, by_number = Counter(), {}
    for row in tables["nccl_long"]:
        begin, nanos = int(float(row["ts"]) * 1e3), int(float(row["dur"]) * 1e3)
        theirs[int(row["rank"]), nanos] += 1
        by_number.setdefault(row["collective_id"], []).append(begin + nanos)
    ours = Counter()
    for device in profile["devices"]:
        for kernel in kernels(device, profile["names"]):
            if kernel["name"].startswith("nccl"):
                ours[device["rank"], kernel["ns"]] += 1
    apart = [max(ends) - min(ends) for ends in by_number.values() if len(ends) > 1]
    of = [max(begin + nanos for _, begin, nanos in one["on"]) - min(begin + nanos for _, begin, nanos in one["on"])
          for one in profile["ranks"]["collectives"]]
    return [
        ("collectives with their times by rank", theirs.total(), ours.total(), theirs == ours),
        ("found on both ranks, not judged: it goes by order, we by ends", len(apart), len(of), True),
        ("how far apart these end, ns", sorted(apart), sorted(of), max(of) <= 1_000_000),
    ]


def main():
    if not SHARED.is_dir():
        print("skipped: the traces aren't here")
        return UNREACHABLE
    commands = environment()
    if commands is None:
        return UNREACHABLE
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for trace, capture in GRAPHS:
            wrong += told(f"{trace}: TraceLens | brickscope", of_graph(commands, trace, capture, folder / trace))
        wrong += told(f"{ROCPROF}: TraceLens | brickscope", of_rocprof(commands, folder / "rocprof"))
        wrong += told("sampled_rank-0 and -1: TraceLens | brickscope", of_ranks(commands, folder / "ranks"))
    return 1 if wrong else 0
