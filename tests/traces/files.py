"""Each file's figures on brickscope's screens and in its JSON, beside what reference.py works out from the file.

Of each trace: the first screen's busy, span and gaps, the five kernels with most time (`--as kernels`, with the names that
the JSON has), and the sums of all kernels by name, to the nanosecond. Of llama-bench's files, each rate.
"""

import pathlib
import re
import sqlite3
import tempfile
from collections import Counter

import recorded
from reference import NotRead, figures, rates_of_bench
from shown import REPOSITORY, SHARED, brickscope, kernels, profile

# Those with a device in them.
OWN = ["kineto-gpu.json", "pytorch-h200.json.gz", "kineto-streams.json", "kineto-training.json", "rocprofv3.json",
       "rocprofv3_kernel_trace.csv"]
UNITS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


def shown_as(nanos, text):
    """Whether a time as the screen writes it is so many nanoseconds, to its last digit."""
    number, unit = text.split()
    digits = len(number.split(".")[1]) if "." in number else 0
    return abs(nanos / UNITS[unit] - float(number)) <= 0.51 * 10**-digits


def by_the_screen(run):
    """Busy and span of each device as the first screen writes them, and its gaps."""
    _, screen, _ = brickscope("show", run)
    flat = " ".join(screen.split())
    busy = re.findall(r"(?:the device|device (\d+)) is busy ([\d.]+ \S+) of ([\d.]+ \S+) from its first kernel to its last", flat)
    gaps = re.search(r"gaps (<?[\d.]+) %", flat)
    return [(busy_of, span) for _, busy_of, span in busy], gaps and gaps.group(1)


def compared(path, run):
    """Rows of a trace: what is compared, both figures, and whether they are equal."""
    expected = figures(path)
    shown = profile(run)
    screens, gaps = by_the_screen(run)
    rows = []
    if len(shown["devices"]) != len(expected):
        return [("devices", len(expected), len(shown["devices"]), False)]
    for number, (of, device) in enumerate(zip(expected.values(), shown["devices"])):
        name = f"device {number} "
        busy, span = screens[number] if number < len(screens) else ("0 ns", "0 ns")
        rows.append((name + "busy", f"{of['busy']} ns", busy, shown_as(of["busy"], busy)))
        rows.append((name + "of", f"{of['span']} ns", span, shown_as(of["span"], span)))
        # The table is of the first device.
        if number == 0 and of["steps"]:
            share = 100 * of["gaps"] / of["span"]
            is_equal = share < 0.1 if gaps == "<0.1" else abs(share - float(gaps or "nan")) <= 0.051
            rows.append((name + "gaps", f"{share:.3f} %", f"{gaps} %", is_equal))
        rows += tops(name, of, number, run, device, shown["names"])
    return rows


def tops(device_name, of, number, run, device, names):
    """The five kernels with most time: to the nanosecond in the JSON, by whole names, and as the table prints them."""
    sums = Counter()
    for kernel in kernels(device, names):
        sums[kernel["name"]] += kernel["ns"]
    all_of, unequal = of["kernels"], [name for name in of["kernels"] | sums if of["kernels"][name] != sums[name]]
    rows = [
        (device_name + "kernels in all", f"{all_of.total()} ns", f"{sums.total()} ns", all_of.total() == sums.total()),
        (device_name + "names of which the sum differs", 0, len(unequal), not unequal),
    ]
    _, text, _ = brickscope("show", run, "--device", str(number), "--as", "kernels")
    printed, lines = table(text)
    order = [name for name, _ in printed.most_common(5)]
    for place, (name, nanos) in enumerate(of["top"]):
        what = f"{device_name}kernel {place + 1}: {name[:30]}"
        rows.append((what, f"{nanos} ns", f"{sums[name]} ns", nanos == sums[name]))
        # A name that is cut may be that of several kernels.
        alike = [shown for shown in printed if is_shown_as(name, shown)]
        nearest = min(alike, key=lambda shown: abs(printed[shown] - nanos / 1e3), default="")
        micros = printed[nearest] if alike else float("nan")
        # Each row of a kernel, one for each shape of its launches, is rounded to tenths.
        apart = 0.05 * lines[nearest] + 0.001
        is_equal = abs(micros - nanos / 1e3) <= apart
        is_place = is_equal and abs(micros - printed[order[place]]) <= 0.05 * lines[order[place]] + apart
        rows.append((what + " in the table", f"{nanos / 1e3:.1f}", f"{micros:.1f}", is_place))
    return rows


def table(text):
    """What `--as kernels` prints: the microseconds of each name, which has a line of its own if it is long, and how many rows
    they are in."""
    sums, lines, name = Counter(), Counter(), ""
    for line in text.splitlines()[3:]:
        row = re.match(r"(.{22}) +(\d+) +([\d.]+)  ", line + "  ")
        if row is None:
            name = line
            continue
        name = row.group(1).strip() or name
        sums[name] += float(row.group(3))
        lines[name] += 1
    return sums, lines


def is_shown_as(name, shown):
    """Whether a name is shown so: whole, or with `…` for a part."""
    # Control characters and the like are escaped.
    first, *others = shown.split("…")
    at = len(first)
    if not name.startswith(first) or (not others and name != shown):
        return False
    for nth, part in enumerate(others):
        is_last = nth == len(others) - 1
        at = len(name) - len(part) if is_last and name.endswith(part) else name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def rates(path, run):
    """Each test's rate on the first screen beside the file's."""
    _, screen, _ = brickscope("show", run)
    _, full, _ = brickscope("show", run, "--full")
    rows = []
    for test, rate in rates_of_bench(path):
        found = re.search(rf"^{re.escape(test)} +([\d.]+)(?: ± [\d.]+)? tok/s", screen + full, re.M)
        shown = found.group(1) if found else "nan"
        digits = len(shown.split(".")[1]) if "." in shown else 0
        rows.append((test, f"{rate}", shown, abs(rate - float(shown)) <= 0.51 * 10**-digits))
    return rows


def one(path, folder):
    """Whether a file was compared, and how many figures differ."""
    run = folder / path.name
    look = rates if ".jsonl" in path.suffixes else compared
    try:
        # First, since what isn't a trace isn't imported.
        (rates_of_bench if look is rates else figures)(path)
    except NotRead as why:
        print(f"--  {path.name:44} not read: {why}")
        return False, 0
    code, _, said = brickscope("import", path, "--out", run)
    if code:
        print(f"NO  {path.name:44} not imported: {said.strip()}")
        return True, 1
    rows = look(path, run)
    wrong = [row for row in rows if not row[-1]]
    first = " · ".join(f"{what}: {a} | {b}" for what, a, b, _ in rows[:3])
    print(f"{'NO' if wrong else 'ok'}  {path.name:44} {len(rows) - len(wrong)} of {len(rows)} equal  {first}")
    for what, a, b, _ in wrong:
        print(f"      {what}: {a}, and brickscope {b}")
    return True, len(wrong)


def made(folder):
    """Databases of the repository's SQL, and what rocprofv3 recorded in its other forms."""
    own = REPOSITORY / "tests" / "data" / "import"
    for name in ("nsight", "rocpd"):
        with sqlite3.connect(folder / f"{name}.sqlite") as base:
            base.executescript((own / f"{name}.sql").read_text())
        yield folder / f"{name}.sqlite"
    real = SHARED / "rocprofv3_908_results.json.gz"
    if real.is_file():
        recorded.as_csv(real, folder / "908_kernel_trace.csv")
        yield folder / "908_kernel_trace.csv"
        recorded.as_rocpd(real, (own / "rocpd.sql").read_text(), folder / "908_results.db")
        yield folder / "908_results.db"


def check(folders):
    """How many figures differ, or were not to be had at all."""
    own = REPOSITORY / "tests" / "data" / "import"
    files = [own / name for name in OWN]
    for folder in folders or ([SHARED] if SHARED.is_dir() else []):
        read = {".json", ".jsonl", ".sqlite", ".db"}
        files += sorted(path for path in pathlib.Path(folder).iterdir() if set(path.suffixes) & read)
    print("    file: the file's own figure | brickscope's")
    with tempfile.TemporaryDirectory() as folder:
        files += made(pathlib.Path(folder))
        done = [one(path, pathlib.Path(folder) / "runs") for path in files]
    wrong = sum(differ for _, differ in done)
    number = sum(was for was, _ in done)
    print(f"{number} of {len(files)} files compared, {wrong} figures differ")
    return wrong if number else 1
