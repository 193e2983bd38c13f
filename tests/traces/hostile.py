"""Damaged traces through the command: each is imported or refused with an error, and nothing else happens.

    tests/traces/run hostile     BRICKSCOPE_MUTANTS of each format, 300 by default

Text is damaged anywhere, or an event's value becomes another; databases lose bytes, or a value of a row becomes another. What
is imported has to be a run that can be shown. Files that did harm are kept in target/traces/hostile.
"""

import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

from planted import Job
from shown import BRICKSCOPE, FOLDER, REPOSITORY

MUTANTS = int(os.environ.get("BRICKSCOPE_MUTANTS", 300))
SEED = int(os.environ.get("BRICKSCOPE_SEED", time.time_ns() % 1_000_000))
MOST_SECONDS, MOST_BYTES = 60, 2 << 30
OWN = REPOSITORY / "tests" / "data" / "import"

VALUES = [
    "0", "1", "-1", "7", "65536", "4294967295", "9223372036854775807", "18446744073709551615", "1e18", "1e308", "-0.0", "nan",
    "null", "true", "[]", "{}", '""', '"x"', '"kernel"', '"cuda_runtime"', '"cudaGraphLaunch"', '"hipStreamBeginCapture"',
    '"execute_context_0(0)_generation_32(32)"', '"step[DECODE bs=18446744073709551615]"', "[4294967295, 1, 1]",
    '"9223372036854775807.9999"', '"' + "a" * 5000 + '"', '"\\u0000"', '"\\ud800"',
]
PIECES = ["", "0", "-1", "1e18", "18446744073709551615", "null", '"', "{", "[", "]", "}", ",", ":", "\n", "\u2028", "\x00", "\\"]
IN_ROWS = [None, 0, 1, -1, 1 << 31, 1 << 62, -(1 << 63), (1 << 63) - 1, 1.5, 1e308, "", "x", "a" * 5000, b"\xff\x00",
           "decode", '{"message": 3}', "{'Module': '"]


def pair():
    """A replay of a graph of eight layers, and its capture."""
    call, replay, capture = 0, [], []

    def add(events, cat, name, at, nanos, tid, **args):
        where = {"pid": 1, "tid": tid} if tid else {"pid": 0, "tid": 3}
        events.append({"ph": "X", "cat": cat, "name": name, **where, "ts": at, "dur": nanos, "args": args})

    add(replay, "user_annotation", "step[DECODE bs=32]", 100, 900, 1)
    add(replay, "cuda_runtime", "hipGraphLaunch", 200, 20, 1, correlation=9000)
    add(capture, "cuda_runtime", "hipStreamBeginCapture", 100, 1, 1, correlation=1)
    at, when = 110, 300
    layer = ["rmsnorm_kernel", "Cijk_qkv", "rotary_embedding_kernel", "paged_attention_kernel", "Cijk_out", "rmsnorm_kernel",
             "Cijk_gate_up", "silu_and_mul_kernel", "Cijk_down"]
    for name in ["gather_kernel", *layer * 8, "rmsnorm_kernel"]:
        if call % len(layer) == 1 and call < 8 * len(layer):
            number = call // len(layer)
            add(capture, "python_function", f"nn.Module: Qwen3DecoderLayer_{number}", at, 10 * len(layer) - 1, 1)
        call += 1
        add(capture, "cpu_op", "aten::mm" if "Cijk" in name else "aten::mul", at + 1, 6, 1)
        add(capture, "cuda_runtime", "hipLaunchKernel", at + 2, 2, 1, correlation=100 + call, kernel=name)
        add(replay, "kernel", name, when, 5, 0, device=0, stream=3, correlation=9000, grid=[8, 1, 1], block=[64, 1, 1])
        at, when = at + 10, when + 6
    add(capture, "cuda_runtime", "hipStreamEndCapture", at, 1, 1, correlation=2)
    return [json.dumps({"schemaVersion": 1, "traceEvents": events}) for events in (replay, capture)]


def damaged(rng, text):
    """A text of which a part is another."""
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.5 and '": ' in text:
            # The value of a key.
            at = text.find('": ', rng.randrange(len(text))) + 3
            end = min((place for place in (text.find(mark, at) for mark in ",}]") if place >= 0), default=len(text))
            text = text[:at] + rng.choice(VALUES) + text[end:] if at > 2 else text
        else:
            at = rng.randrange(len(text) + 1)
            rest = "" if rng.random() < 0.2 else text[at + rng.randrange(12):]
            text = text[:at] + rng.choice(PIECES) + rest
    return text


def damaged_database(rng, whole, path):
    """A database of which some bytes are others, or values of some rows."""
    path.write_bytes(whole)
    if rng.random() < 0.6:
        base = sqlite3.connect(path)
        # Nobody needs it after a loss of power.
        base.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        for _ in range(rng.randint(1, 6)):
            table = rng.choice(tables)
            column = rng.choice([row[1] for row in base.execute(f"PRAGMA table_info({table})")])
            which = "1" if rng.random() < 0.1 else f"rowid = {rng.randint(1, 8)}"
            try:
                base.execute(f'UPDATE {table} SET "{column}" = ? WHERE {which}', (rng.choice(IN_ROWS),))
            except sqlite3.Error:
                # What a column forbids.
                pass
        base.commit()
        base.close()
        return
    data = bytearray(whole)
    for _ in range(rng.randint(1, 12)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[:rng.randrange(len(data))] if rng.random() < 0.05 else data)


def formats():
    """Of each format: names of files, and a function that writes damaged ones to a folder and says what to import."""

    def text_of(name, options=()):
        text = (OWN / name).read_text()

        def write(rng, folder):
            (folder / name).write_bytes(damaged(rng, text).encode(errors="replace"))
            return [folder / name, *rng.choice([(), options])]

        return write

    def database_of(name):
        with tempfile.TemporaryDirectory() as made:
            base = sqlite3.connect(Path(made) / "whole.sqlite")
            base.executescript((OWN / f"{name}.sql").read_text())
            base.close()
            whole = (Path(made) / "whole.sqlite").read_bytes()

        def write(rng, folder):
            path = folder / f"{name}.sqlite"
            damaged_database(rng, whole, path)
            return [path, *rng.choice([(), ("--decode", "decode")])]

        return write

    def several(texts, names, words):
        def write(rng, folder):
            which = rng.randrange(len(texts))
            for number, (name, text) in enumerate(zip(names, texts)):
                (folder / name).write_bytes((damaged(rng, text) if number == which else text).encode(errors="replace"))
            return words(folder)

        return write

    job = Job(2, 2, 3, [5, 0], 5)
    ranks = [json.dumps(job.trace(rank)) for rank in range(2)]
    return {
        "PyTorch's trace": text_of("kineto-gpu.json"),
        "a replay and its capture": several(
            pair(), ["replay.json", "capture.json"], lambda at: [at / "replay.json", "--capture", at / "capture.json"]),
        "two ranks": several(ranks, ["rank0.json", "rank1.json"], lambda at: [at / "rank0.json", at / "rank1.json"]),
        "Nsight's database": database_of("nsight"),
        "rocprofv3's database": database_of("rocpd"),
        "rocprofv3's JSON": text_of("rocprofv3.json", ("--decode", "decode")),
        "rocprofv3's CSV": text_of("rocprofv3_kernel_trace.csv"),
        "JAX's trace": text_of("jax.json", ("--decode", "jit_*")),
    }


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


def ran(words):
    """What is wrong with a run of the command, or `None`, and its exit code."""
    line = [BRICKSCOPE, *map(str, words)]
    try:
        run = subprocess.run(
            line, capture_output=True, timeout=MOST_SECONDS, preexec_fn=limits, env={**os.environ, "NO_COLOR": "1"})
    except subprocess.TimeoutExpired:
        return f"takes more than {MOST_SECONDS} s", None
    said = run.stderr.decode(errors="replace")
    if run.returncode not in (0, 1, 2) or "panicked" in said:
        return f"ends with {run.returncode}: {said.strip()[-300:]}", run.returncode
    if run.returncode and not said.strip():
        return "says nothing", run.returncode
    return None, run.returncode


def check():
    print(f"{MUTANTS} of each format, BRICKSCOPE_SEED={SEED}")
    kept, wrong = FOLDER / "hostile", 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for number, (title, write) in enumerate(formats().items()):
            imported, harm, slowest = 0, [], 0
            for nth in range(MUTANTS):
                rng = random.Random(SEED * 1_000_003 + number * 100_003 + nth)
                words, run = write(rng, folder), folder / "run"
                begun = time.monotonic()
                problem, code = ran(["import", *words, "--out", run])
                if code == 0 and not problem:
                    imported += 1
                    problem, code = ran(["show", run, "--as", rng.choice(["summary", "report", "json", "kernels"])])
                    problem = problem or (f"can't be shown: {code}" if code else None)
                slowest = max(slowest, time.monotonic() - begun)
                shutil.rmtree(run, ignore_errors=True)
                if problem:
                    at = kept / f"{number}-{nth}"
                    shutil.copytree(folder, at, dirs_exist_ok=True)
                    harm.append(f"{at}: {' '.join(map(str, words))}: {problem}")
            # Damage that leaves nothing to read would test nothing.
            is_right = not harm and imported * 20 >= MUTANTS
            print(f"{'ok' if is_right else 'NO'}  {title:26} {imported} imported, {MUTANTS - imported} refused, "
                  f"{len(harm)} did harm; the slowest took {slowest:.1f} s", flush=True)
            for line in harm[:5]:
                print(f"      {line}")
            wrong += not is_right
    return wrong
