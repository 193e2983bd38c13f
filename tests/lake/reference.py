"""What the questions of a lake have for answers, worked out in Python from the recordings: without SQL, and without the
lake, its tables and its reading rules. A question whose SQL is wrong in every engine alike differs from this.

Each function says what a question means, by its first comment and docs/fleet.md, and counts it as a person would:

    inventory, machines                 the head of each profile, receipt or file of llama-bench
    trend, compare, slowest-machines,
    regressions, who-backs              tokens and time of each pass of a profile, and of each repetition of the others
    slow-passes, disturbed              passes of profiles and files of llama-bench, repetitions' passes of receipts
    bricks, kernels, far-from-roof,
    percentiles                         single spans; kernels from the profile's sums where it lacks their spans
    unverified                          which receipt was changed after it was sealed

Files of llama-bench are read as that program writes them, and a trace of PyTorch as the profile that `brickscope
import` makes of it. The lake itself is asked only for what it calls each run, and where it says that the run was:
`run_id` and `source`.
"""

import json
import math
import re
from collections import Counter, defaultdict
from fractions import Fraction
from statistics import fmean, geometric_mean, median
from types import SimpleNamespace


class Recording(SimpleNamespace):
    """A run's files, and what whoever collects them says of it: `folder` has profile.json, receipt.json, both, or
    bench.json of llama-bench; or `receipt` is a receipt's file. `refused` is why a receipt doesn't verify."""

    def __init__(self, **given):
        absent = dict(folder=None, receipt=None, commit=None, session=None, refused=None)
        super().__init__(**{**absent, **given})


def file_name(path):
    """That of a model's file: machines have it in different folders."""
    return re.split(r"[/\\]", path)[-1].removesuffix(".gguf")


def format_in(words):
    """The quantisation that the words of an architecture name, as llama-bench writes it."""
    found = (word for word in words.split() if re.match(r"(Q|IQ|TQ|F|BF|MXFP)[0-9]", word))
    return next(found, "").lower() or None


def read(recording):
    """A run: what is known of it, its speeds by test, its passes, and its spans."""
    run = SimpleNamespace(machine=recording.machine, refused=recording.refused, receipt_sha256=None)
    run.engine, run.threads, run.cpu, run.cpus = "brickscope", None, None, None
    run.model, run.quant, run.backend, run.commit = None, None, None, None
    run.others_share, run.bandwidth, run.boot, run.is_profiled, run.device = None, None, None, True, None
    run.roof_device = None
    run.speeds, run.passes, run.timed, run.wall, run.conditions = [], [], [], Counter(), None
    run.idle = Counter()
    files = {}
    for name in ["profile.json", "receipt.json", "bench.json"]:
        path = recording.folder and recording.folder / name
        if path and path.exists():
            files[name] = json.loads(path.read_bytes())
    if recording.receipt:
        files["receipt.json"] = json.loads(recording.receipt.read_bytes())
    if "bench.json" in files:
        of_bench(files["bench.json"], run)
    elif "profile.json" in files:
        of_profile(files["profile.json"], run)
    if "receipt.json" in files:
        of_receipt(files["receipt.json"], run)
    run.date = run.created[:10]
    run.commit = recording.commit or run.commit
    run.session = recording.session or (run.boot and f"{run.boot} {run.date}")
    return run


def of_head(of, run):
    """What profiles and receipts state alike. Profiles of other programs' files may lack any of it."""
    if of.get("model"):
        run.model = of["model"]["name"] or file_name(of["model"]["path"]) or None
        run.quant = of["model"]["quantization"] or format_in(of["model"].get("architecture") or "")
    if of.get("machine"):
        run.cpu, run.cpus = of["machine"]["cpu"], of["machine"]["logical_cpus"]
    if of.get("run"):
        run.threads = of["run"]["threads"] or None
        run.backend = of["run"].get("backend") or None
    devices = of.get("devices") or [{}]
    host, device = (measured(on.get("ceilings")) for on in (of, devices[0]))
    if ceilings := host or device:
        run.bandwidth = ceilings["read_bytes_per_second"]
        run.roof_device = None if host else devices[0].get("name")


def measured(ceilings):
    """Limits, unless somebody only stated them."""
    is_stated = ceilings and ceilings.get("basis", "").startswith("stated by the user")
    return None if is_stated else ceilings


def of_profile(profile, run):
    of_head(profile, run)
    run.device = next((device["name"] for device in profile.get("devices", [])), None)
    run.created = profile["created"]
    imported = profile.get("imported")
    of_model, of_run = (profile.get(name) or {} for name in ["model", "run"])
    sizes = [of_model.get(name) for name in ["architecture", "parameters", "file_bytes"]]
    run.conditions = json.dumps([*sizes, *(of_run.get(name) for name in ["prompt_tokens", "generated_tokens"])])
    if imported:
        run.engine = engine_of(imported["program"] or imported["format"])
    if profile.get("other_load"):
        run.others_share = profile["other_load"]["others_ns"] / profile["other_load"]["machine_ns"]
    on_devices = [(device["name"], stream) for device in profile.get("devices", []) for stream in device["streams"]]
    several = {device["name"] for device in profile.get("devices", []) if len(device["streams"]) > 1}
    for device in profile.get("devices", []):
        if device["name"] in several:
            add_device(device, imported, run)
    for device, of in [(None, profile), *on_devices]:
        phase_of = {}
        for one in of["passes"]:
            phase_of[one["serial"]] = one["phase"]
            if device in several:
                continue
            # Of what had no bricks at all, the time in none isn't known.
            if of["totals"]:
                run.wall[device, one["phase"]] += one["wall_ns"]
            # In a file of another program 0 may mean that it doesn't say it.
            position = one["position"] or (None if imported else 0)
            known = dict(number=one["serial"], phase=one["phase"], device=device, test=None, position=position)
            disturbed = is_disturbed(one["disturbance"])
            run.passes.append(SimpleNamespace(**known, wall_ns=one["wall_ns"], is_disturbed=disturbed))
        add_spans(of, profile["names"], phase_of, device, run)
    for phase in {one["phase"] for one in profile["passes"]}:
        of_phase = [one for one in profile["passes"] if one["phase"] == phase]
        tokens, wall_ns = (sum(one[of] for one in of_phase) for of in ["tokens", "wall_ns"])
        if tokens:
            add_speed(run, phase, [(tokens, wall_ns)], is_spread_known=False)


def engine_of(program):
    """Without the version, which has digits."""
    words = program.split()
    at = next((at for at in range(1, len(words)) if any(c.isdigit() for c in words[at])), len(words))
    return " ".join(words[:at]).removesuffix("'s profiler")


def add_device(device, imported, run):
    """The passes of a device with several streams: each from its first mark on any of them to its last. What is in no
    brick there lies in none of any stream."""
    passes = defaultdict(list)
    for stream in device["streams"]:
        for one in stream["passes"]:
            passes[one["serial"]].append(one)
    busy = defaultdict(list)
    for stream in device["streams"]:
        columns = {name: at for at, name in enumerate(stream["spans"]["columns"])}
        for row in stream["spans"]["rows"]:
            if row[columns["pass"]] is not None and row[columns["exclusive_ns"]]:
                start = row[columns["start_ns"]]
                busy[row[columns["pass"]]].append((start, start + row[columns["duration_ns"]]))
    has_bricks = any(stream["totals"] for stream in device["streams"])
    for serial, of in sorted(passes.items()):
        first, start = of[0], min(one["start_ns"] for one in of)
        wall_ns = max(one["start_ns"] + one["wall_ns"] for one in of) - start
        idle_ns, until = wall_ns, 0
        for begin, end in sorted(busy[serial]):
            idle_ns -= max(0, end - max(begin, until))
            until = max(until, end)
        if has_bricks:
            run.wall[device["name"], first["phase"]] += wall_ns
            run.idle[device["name"], first["phase"]] += idle_ns
        known = dict(number=serial, phase=first["phase"], device=device["name"], test=None)
        known["position"] = first["position"] or (None if imported else 0)
        run.passes.append(SimpleNamespace(**known, wall_ns=wall_ns, is_disturbed=is_disturbed(first["disturbance"])))


def is_disturbed(watched):
    """Whether a thread waited for a CPU, or the hypervisor took one, for more than a hundredth of the time; where
    nobody measured waits, whether a thread lost its CPU at all. None where nobody looked."""
    if watched is None:
        return None
    long = lambda ns: ns is not None and 100 * ns > watched["wall_ns"]
    if watched["longest_wait_ns"] is None and (watched["involuntary_switches"] or 0) > 0:
        return True
    return long(watched["longest_wait_ns"]) or long(watched["steal_ns"])


def add_spans(of, names, phase_of, device, run):
    """The spans of each brick and kernel. Those of a kernel are in the innermost brick around them; a profile without
    all of them has their sums, and then nobody knows the brick."""
    columns = {name: at for at, name in enumerate(of["spans"]["columns"])}
    rows = of["spans"]["rows"]
    cell = lambda row, name: row[columns[name]]
    found = defaultdict(list)
    for row in rows:
        if cell(row, "name") is None:
            continue
        name = names[cell(row, "name")]
        brick = None
        around = cell(row, "parent")
        while around is not None and brick is None:
            outer = cell(rows[around], "name")
            if outer is not None and names[outer]["kind"] == "brick":
                brick = names[outer]["name"]
            around = cell(rows[around], "parent")
        key = phase_of.get(cell(row, "pass")), name["kind"], name["name"]
        times = cell(row, "duration_ns"), cell(row, "exclusive_ns"), cell(row, "bytes")
        found[key].append((brick, *times))
    sums = defaultdict(list)
    for total in of["totals"]:
        sums[total["phase"], total["kind"], total["name"]].append(total)
    for (phase, kind, name), totals in sums.items():
        spans = found[phase, kind, name]
        within = defaultdict(list)
        if len(spans) == sum(total["count"] for total in totals):
            for brick, *times in spans:
                within[name if kind == "brick" else brick].append(times)
        for brick, times in within.items():
            durations, exclusive, moved = zip(*times)
            add_timed(run, phase, device, kind, name, brick, Counter(durations), sum(durations), sum(exclusive), moved)
        if not within:
            durations = Counter()
            for total in totals:
                # The least duration of a bucket stands for all in it.
                for least, count in total["histogram"]:
                    durations[least] += count
            total_ns, exclusive = (sum(total[of] for total in totals) for of in ["total_ns", "exclusive_ns"])
            moved = [total["total_bytes"] for total in totals]
            brick = name if kind == "brick" else None
            add_timed(run, phase, device, kind, name, brick, durations, total_ns, exclusive, moved)


def add_timed(run, phase, device, kind, name, brick, durations, total_ns, exclusive_ns, moved):
    of = SimpleNamespace(phase=phase, device=device, kind=kind, name=name, brick=brick, durations=durations)
    of.calls, of.total_ns, of.exclusive_ns = durations.total() or None, total_ns, exclusive_ns
    # What states no bytes has 0 or none.
    of.bytes = sum(count or 0 for count in moved) or None
    run.timed.append(of)


def of_receipt(receipt, run):
    """A receipt. Beside a profile, which has the passes, it has the speeds."""
    of_head(receipt, run)
    has_profile = bool(run.passes)
    run.created = receipt["timestamp"]
    run.commit = receipt["environment"].get("COMMIT")
    run.backend = receipt["run"]["kernels"] if receipt["backend"] == "cpu" else receipt["backend"]
    run.others_share = receipt["load"]["others_share"]
    run.device = receipt["device"]["name"] if "device" in receipt else run.device
    run.is_profiled = receipt["run"]["profiled"]
    run.boot = receipt["machine"]["boot"] and receipt["machine"]["boot"][:8]
    run.receipt_sha256 = receipt["seal"]["sha256"]
    sampled = receipt["run"]["sampling"], receipt["run"]["batch"]
    run.conditions = json.dumps([*sampled, receipt["model"]["sha256"], [test["input_sha256"] for test in receipt["tests"]]])
    run.speeds = []
    passes = 0
    for test in receipt["tests"]:
        measured = [sample for sample in test["samples"] if not sample["is_warm_up"]]
        add_speed(run, test["name"], [(sample["tokens"], sample["wall_ns"]) for sample in measured])
        phase = {(True, False): "prefill", (False, True): "decode"}.get((test["n_prompt"] > 0, test["n_gen"] > 0))
        if has_profile or not phase:
            continue
        run.wall[None, phase] += sum(sample["wall_ns"] for sample in measured)
        for at, brick in enumerate(test["bricks"]):
            ns = sum(sample["brick_ns"][at] for sample in measured)
            add_timed(run, phase, None, "brick", brick["name"], brick["name"], Counter(), None, ns, [])
        for sample in measured:
            for wall_ns in sample["pass_ns"]:
                known = dict(number=passes, phase=phase, device=None, test=test["name"], position=None, wall_ns=wall_ns)
                run.passes.append(SimpleNamespace(**known, is_disturbed=None))
                passes += 1


def of_bench(rows, run):
    """A file of llama-bench: each repetition of a test is a pass."""
    run.engine, first = "llama.cpp", rows[0]
    run.created, run.commit, run.cpu = first["test_time"], first["build_commit"], first["cpu_info"]
    run.model = file_name(first["model_filename"])
    # "llama 1B Q8_0"
    run.quant = first["model_type"].split()[2].lower()
    run.backend, run.threads, run.device = first["backends"], first["n_threads"], first["gpu_info"] or None
    other = {"build_commit", "build_number", "cpu_info", "model_filename", "test_time", "n_prompt", "n_gen", "n_depth"}
    stated = {key: value for key, value in first.items() if key not in other and not key.startswith(("samples_", "avg_", "stddev_"))}
    run.conditions = json.dumps(stated, sort_keys=True)
    for row in rows:
        depth = f" @ d{row['n_depth']}" if row["n_depth"] else ""
        phase, short = ("prefill", "pp") if row["n_prompt"] else ("decode", "tg")
        tokens = row["n_prompt"] or row["n_gen"]
        add_speed(run, f"{short}{tokens}{depth}", [(tokens, wall_ns) for wall_ns in row["samples_ns"]])
        for wall_ns in row["samples_ns"]:
            number, position = len(run.passes) + 1, row["n_depth"] or None
            known = dict(number=number, phase=phase, device=None, test=None, position=position, wall_ns=wall_ns)
            run.passes.append(SimpleNamespace(**known, is_disturbed=None))


def add_speed(run, test, measured, is_spread_known=True):
    rates = [tokens / (wall_ns / 1e9) for tokens, wall_ns in measured]
    low, high = (min(rates), max(rates)) if is_spread_known else (None, None)
    run.speeds.append(SimpleNamespace(test=test, rate=median(rates), low=low, high=high))


class Flags(SimpleNamespace):
    """The words after `brickscope lake`."""

    def __init__(self, words):
        given = dict(since=None, until=None, model=None, test=None, phase=None, brick=None, by="quant", within="1")
        pairs = ["--number", *words[1:]] if words[0] == "who-backs" else words[1:]
        given.update((flag.removeprefix("--"), value) for flag, value in zip(pairs[::2], pairs[1::2], strict=True))
        super().__init__(**given)

    def runs(self, runs):
        for run in runs:
            is_in_time = (self.since or run.date) <= run.date <= (self.until or run.date)
            if is_in_time and self.model in (None, run.model):
                yield run

    def speeds(self, runs):
        for run in self.runs(runs):
            for speed in run.speeds:
                if self.test in (None, speed.test) and speed.rate > 0:
                    yield run, speed

    def timed(self, runs):
        """Bricks and kernels in passes."""
        for run in self.runs(runs):
            for of in run.timed:
                if of.phase is not None and self.phase in (None, of.phase):
                    yield run, of


def grouped(items, key):
    groups = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups.items()


def ordered(rows, *columns):
    """By columns; of `-column` the largest first. What is unknown comes last."""
    for column in reversed(columns):
        name = column.removeprefix("-")
        known = [row for row in rows if row[name] is not None]
        unknown = [row for row in rows if row[name] is None]
        rows[:] = sorted(known, key=lambda row: row[name], reverse=column != name) + unknown
    return rows


def distinct(values):
    return len(set(values) - {None})


def mean(values):
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def work(run, speed):
    """What must be equal: what the run states of itself, and of llama-bench each of its conditions."""
    of_run = run.engine, run.model, run.quant, run.backend, run.device, run.threads, run.is_profiled
    return *of_run, run.conditions, speed.test


def inventory(flags, runs):
    rows = []
    for (engine, model, quant), of in grouped(flags.runs(runs), lambda run: (run.engine, run.model, run.quant)):
        row = dict(engine=engine, model=model or "", quant=quant or "", runs=len(of))
        row["machines"] = distinct(run.machine for run in of)
        row["commits"] = distinct(run.commit for run in of)
        rows.append(dict(row, first_day=min(run.date for run in of), last_day=max(run.date for run in of)))
    return ordered(rows, "-runs", "engine", "model", "quant")


def machines(flags, runs):
    rows = []
    for (machine, device), of in grouped(flags.runs(runs), lambda run: (run.machine, run.device or "")):
        row = dict(machine=machine, device=device, cpu=max(run.cpu or "" for run in of), runs=len(of))
        row["cpus"] = max((run.cpus for run in of if run.cpus is not None), default=None)
        row["last_day"] = max(run.date for run in of)
        row["sessions"] = distinct(run.session for run in of)
        row["others_share"] = mean(run.others_share for run in of)
        bandwidth = mean(run.bandwidth for run in of if (run.roof_device or "") == device)
        rows.append(dict(row, read_gb_per_s=bandwidth and bandwidth / 1e9))
    return ordered(rows, "-runs", "machine", "device")


def trend(flags, runs):
    rows = []
    key = lambda of: (of[0].date, of[0].engine, of[0].model, of[0].quant, of[1].test)
    for (date, engine, model, quant, test), of in grouped(flags.speeds(runs), key):
        row = dict(date=date, engine=engine, model=model or "", quant=quant or "", test=test, runs=len(of))
        rows.append(dict(row, tokens_per_second=median(speed.rate for _, speed in of)))
    return ordered(rows, "engine", "model", "quant", "test", "date")


def compare(flags, runs):
    rows = []
    of_run = lambda run: (run.model if flags.by != "model" else None, getattr(run, flags.by))
    for (test, (model, value)), of in grouped(flags.speeds(runs), lambda of: (of[1].test, of_run(of[0]))):
        row = dict(test=test, model=model, value=None if value is None else str(value), runs=len(of))
        rows.append(dict(row, tokens_per_second=median(speed.rate for _, speed in of)))
    return ordered(rows, "test", "model", "-tokens_per_second", "value")


def slowest_machines(flags, runs):
    """Each machine's median speed beside the machine's in the middle, for each work that several machines did; then the
    geometric mean of that over works."""
    beside, sessions, middles = defaultdict(list), defaultdict(dict), {}
    for done, of in grouped(flags.speeds(runs), lambda of: work(*of)):
        by_machine = dict(grouped(of, lambda of: of[0].machine))
        if len(by_machine) > 1:
            rates = {machine: median(speed.rate for _, speed in own) for machine, own in by_machine.items()}
            in_order = sorted(rates, key=lambda machine: (rates[machine], machine))
            middles[done] = in_order[(len(rates) - 1) // 2 : len(rates) // 2 + 1]
            middle = geometric_mean(rates[machine] for machine in middles[done])
            for machine, own in by_machine.items():
                beside[machine].append(rates[machine] / middle)
                by_session = grouped(own, lambda of: of[0].session or of[0].date)
                sessions[machine][done] = [fmean(math.log(speed.rate) for _, speed in of) for _, of in by_session]
    squares, degrees = {}, {}
    for machine, of in sessions.items():
        squares[machine] = sum((log - fmean(logs)) ** 2 for logs in of.values() for log in logs)
        degrees[machine] = sum(len(logs) - 1 for logs in of.values())
    of_all = sum(squares.values()) / max(1, sum(degrees.values()))

    def error(machine, done):
        """The variance of the machine's speed at this work."""
        variance = squares[machine] / degrees[machine] if degrees[machine] else of_all
        return variance / len(sessions[machine][done])

    rows = []
    for machine, of in beside.items():
        count = sum(len(logs) for logs in sessions[machine].values())
        speed, half = geometric_mean(of), None
        if degrees[machine]:
            variance = sum(
                error(machine, done) + sum(error(one, done) for one in middles[done]) / len(middles[done]) ** 2
                for done in sessions[machine]
            )
            half = math.sqrt(variance) / len(of) * student(degrees[machine])
        low, high = (None, None) if half is None else (speed * math.exp(-half), speed * math.exp(half))
        row = dict(machine=machine, tests=len(of), sessions=count, speed_beside_median_machine=speed)
        rows.append(dict(row, low=low, high=high))
    for row in rows:
        low, high = row["low"], row["high"]
        below = sum(other["high"] is not None and low is not None and other["high"] < low for other in rows)
        row["place"] = None if low is None else 1 + below
        words = "below the median", "above the median"
        row["interval_is"] = "not known: too few sessions" if low is None else beside_1(low, high, *words)
    return ordered(rows, "speed_beside_median_machine", "machine")


def beside_1(low, high, below, above):
    return below if high < 1 else above if low > 1 else "not distinguishable"


def student_99(degrees):
    """The same for 99 %."""
    table = {1: 63.66, 2: 9.93, 3: 5.85, 4: 4.61}
    return table.get(degrees) or (4.04 if degrees < 7 else 3.5 if degrees < 10 else 3.17 if degrees < 20 else 2.85)


def student(degrees):
    """Student's t for 95 %, by the table of the question."""
    table = {1: 12.71, 2: 4.31, 3: 3.19, 4: 2.78}
    return table.get(degrees) or (2.58 if degrees < 7 else 2.37 if degrees < 10 else 2.23 if degrees < 20 else 2.1)


def regressions(flags, runs):
    """Each commit's median speed beside that of the commit before it with the same work on the same machine. Commits
    come in the order in which that machine first ran them, whatever the work."""
    first_seen = {}
    for run in runs:
        if run.commit:
            key = run.machine, run.commit
            first_seen[key] = min(run.created, first_seen.get(key, run.created))
    steps, squares, repeats, degrees = defaultdict(list), Counter(), Counter(), Counter()
    speeds = [of for of in flags.speeds(runs) if of[0].commit]
    for (machine, _), of in grouped(speeds, lambda of: (of[0].machine, work(*of))):
        by_commit = dict(grouped(of, lambda of: of[0].commit))
        commits = sorted(by_commit, key=lambda commit: (first_seen[machine, commit], commit))
        rate = lambda commit: median(speed.rate for _, speed in by_commit[commit])
        sessions, own_degrees = {}, 0
        for commit, own in by_commit.items():
            by_session = grouped(own, lambda of: of[0].session or of[0].date)
            logs = [fmean(math.log(speed.rate) for _, speed in of) for _, of in by_session]
            sessions[commit] = len(logs)
            squares[machine] += sum((log - fmean(logs)) ** 2 for log in logs)
            own_degrees += len(logs) - 1
        # Several tests of one session are off alike.
        repeats[machine] += own_degrees
        degrees[machine] = max(degrees[machine], own_degrees)
        for before, commit in zip(commits, commits[1:]):
            parts = 1 / sessions[commit] + 1 / sessions[before]
            steps[commit, before].append((rate(commit) / rate(before), len(by_commit[commit]), machine, parts))
    of_all = sum(squares.values()) / max(1, repeats.total())
    noise = lambda machine: squares[machine] / repeats[machine] if repeats[machine] else of_all
    rows = []
    for (commit, before), of in steps.items():
        ratios = [ratio for ratio, *_ in of]
        row = dict(commit=commit, commit_before=before, machines_and_tests=len(of), measurements=sum(n for _, n, *_ in of))
        speed, low, high, than = geometric_mean(ratios), None, None, "not known: too few sessions"
        known = sum(degrees[machine] for machine in {machine for _, _, machine, _ in of})
        if known:
            errors = Counter()
            for _, _, machine, parts in of:
                errors[machine] += math.sqrt(noise(machine) * parts)
            error = math.sqrt(sum(error**2 for error in errors.values())) / len(of)
            half = error * student_99(known)
            low, high = speed * math.exp(-half), speed * math.exp(half)
            than = beside_1(low, high, "slower", "faster")
        row.update(speed_beside_before=speed, low=low, high=high, than_before=than)
        rows.append(dict(row, worst=min(ratios), best=max(ratios)))
    return ordered(rows, "speed_beside_before", "commit")


def bricks(flags, runs):
    """Each brick's share of the wall time of passes, and what is left of that. `--brick` chooses rows, and leaves
    shares as they are."""
    rows = []
    rest, has_rest = Counter(), defaultdict(list)
    for run in flags.runs(runs):
        for (device, phase), ns in run.wall.items():
            if flags.phase in (None, phase):
                rest[device, phase] += run.idle.get((device, phase), ns)
                has_rest[device, phase].append(run)
    own = [(run, of) for run, of in flags.timed(runs) if of.kind == "brick"]
    for (device, phase, brick), of in grouped(own, lambda of: (of[1].device, of[1].phase, of[1].brick)):
        ns = sum(timed.exclusive_ns for _, timed in of)
        rest[device, phase] -= sum(timed.exclusive_ns for run, timed in of if (device, phase) not in run.idle)
        calls = [timed.calls for _, timed in of if timed.calls is not None]
        row = dict(phase=phase, device=device, brick=brick, runs=len({id(run) for run, _ in of}))
        rows.append(dict(row, calls=sum(calls) if calls else None, ns=ns))
    for (device, phase), ns in rest.items():
        row = dict(phase=phase, device=device, brick="unattributed", runs=len(has_rest[device, phase]), calls=None)
        rows.append(dict(row, ns=ns))
    # Where streams overlap, that is more than the time of the passes.
    whole = Counter()
    for row in rows:
        whole[row["device"], row["phase"]] += row["ns"]
    rows = ordered([row for row in rows if flags.brick in (None, row["brick"])], "phase", "device", "-ns", "brick")
    for row in rows:
        ns = row.pop("ns")
        row.update(seconds=ns / 1e9, percent=100 * ns / whole[row["device"], row["phase"]])
    return rows


def kernels(flags, runs):
    rows = []
    own = [(run, of) for run, of in flags.timed(runs) if of.kind == "kernel"]
    own = [(run, of) for run, of in own if flags.brick in (None, of.brick, of.name)]
    key = lambda of: (of[1].phase, of[1].device, of[1].brick, of[1].name)
    for (phase, device, brick, kernel), of in grouped(own, key):
        row = dict(phase=phase, device=device, brick=brick, kernel=kernel, runs=len({id(run) for run, _ in of}))
        row["calls"] = sum(timed.calls for _, timed in of)
        row["seconds"] = sum(timed.total_ns for _, timed in of) / 1e9
        # Bytes in a nanosecond are GB in a second. Runs that state no bytes have no part in either.
        stated = [timed for _, timed in of if timed.bytes]
        moved, ns = sum(timed.bytes for timed in stated), sum(timed.total_ns for timed in stated)
        rows.append(dict(row, gb_per_s=moved / ns if ns else None))
    return ordered(rows, "-seconds", "phase", "device", "brick", "kernel")


def least_count(quantile):
    """From how many values on one of them lies above the quantile with 99 % certainty."""
    n = 1
    while 1 - float(quantile) ** n < 0.99:
        n += 1
    return n


QUANTILES = {
    name: (quantile, least_count(quantile))
    for name, quantile in [
        ("p50_ns", Fraction(1, 2)),
        ("p90_ns", Fraction(9, 10)),
        ("p99_ns", Fraction(99, 100)),
        ("p999_ns", Fraction(999, 1000)),
    ]
}


def bucket(ns):
    """The least and the largest duration that histograms don't tell from this one: the seven highest binary digits."""
    width = 1 << max(0, ns.bit_length() - 7)
    least = ns // width * width
    return least, least + width - 1


def percentiles(flags, runs):
    """By nearest rank among all spans, and then as exactly as histograms have it."""
    rows = []
    own = [(run, of) for run, of in flags.timed(runs) if flags.brick in (None, of.name) and of.durations]
    key = lambda of: (of[1].phase, of[1].device, of[1].kind, of[1].name)
    for (phase, device, kind, name), of in grouped(own, key):
        durations = Counter()
        for _, timed in of:
            durations.update(timed.durations)
        n = durations.total()
        row = dict(phase=phase, device=device, kind=kind, name=name, spans=n)
        for column, (quantile, least) in QUANTILES.items():
            row[column] = None
            if n >= least:
                rank, seen = math.ceil(quantile * n), 0
                for ns in sorted(durations):
                    seen += durations[ns]
                    if seen >= rank:
                        row[column] = sum(bucket(ns)) / 2
                        break
        rows.append(dict(row, all_below_ns=bucket(max(durations))[1] + 1))
    return ordered(rows, "phase", "device", "kind", "-spans", "name")


def far_from_roof(flags, runs):
    """On the host: the time that a brick's bytes would take at the bandwidth that its run measured, as a part of the
    time that it took."""
    rows = []
    own = [(run, of) for run, of in flags.timed(runs) if of.kind == "brick" and of.bytes and of.total_ns]
    own = [(run, of) for run, of in own if not of.device and run.bandwidth and flags.brick in (None, of.brick)]
    key = lambda of: (of[0].machine, of[0].model, of[0].quant, of[1].phase, of[1].brick)
    for (machine, model, quant, phase, brick), of in grouped(own, key):
        row = dict(machine=machine, model=model or "", quant=quant or "", phase=phase, brick=brick)
        row["runs"] = len({id(run) for run, _ in of})
        row["seconds"] = sum(timed.total_ns for _, timed in of) / 1e9
        at_best = sum(timed.bytes / run.bandwidth for run, timed in of)
        rows.append(dict(row, percent_of_bandwidth=100 * at_best / row["seconds"]))
    return ordered(rows, "percent_of_bandwidth", "machine", "model", "quant", "phase", "brick")


def slow_passes(flags, runs):
    """Of two passes neither is slow beside their median, so that these aren't listed."""
    rows = []
    for run in flags.runs(runs):
        for (phase, device, _), of in grouped(run.passes, lambda of: (of.phase, of.device, of.test)):
            middle = median(one.wall_ns for one in of)
            if flags.phase not in (None, phase) or len(of) < 3 or not middle:
                continue
            for one in of:
                row = dict(date=run.date, machine=run.machine, run_id=run.id, device=device, phase=phase)
                row["pass"] = one.number
                row.update(kv_position=one.position, wall_ms=one.wall_ns / 1e6)
                rows.append(dict(row, times_median=one.wall_ns / middle, is_disturbed=one.is_disturbed))
    # A pass of the host comes before those of its devices.
    rows.sort(key=lambda row: row["device"] or "")
    return ordered(rows, "-times_median", "run_id", "phase", "pass")


def disturbed(flags, runs):
    rows = []
    for machine, of in grouped(flags.runs(runs), lambda run: run.machine):
        watched = [(run, one) for run in of for one in run.passes if one.is_disturbed is not None]
        if watched:
            row = dict(machine=machine, runs=len({id(run) for run, _ in watched}), watched_passes=len(watched))
            percent = 100 * sum(one.is_disturbed for _, one in watched) / len(watched)
            rows.append(dict(row, percent_disturbed=percent))
    return ordered(rows, "-percent_disturbed", "machine")


def who_backs(flags, runs):
    rows = []
    number, within = float(flags.number), float(flags.within)
    for run, speed in flags.speeds(runs):
        if abs(speed.rate - number) <= number * within / 100:
            row = dict(test=speed.test, tokens_per_second=speed.rate, low=speed.low, high=speed.high, date=run.date)
            row.update(machine=run.machine, model=run.model or "", quant=run.quant or "", engine=run.engine)
            receipt = "no receipt" if not run.receipt_sha256 else "refused" if run.refused else "verified"
            row.update(commit=run.commit or "", receipt=receipt, receipt_sha256=run.receipt_sha256 or "")
            rows.append(dict(row, away=abs(speed.rate - number), run_id=run.id))
    ordered(rows, "away", "-date", "run_id", "test")
    return [{name: cell for name, cell in row.items() if name not in ("away", "run_id")} for row in rows]


def unverified(flags, runs):
    rows = []
    for run in flags.runs(runs):
        if run.refused:
            row = dict(date=run.date, machine=run.machine, run_id=run.id, receipt_refused=run.refused)
            rows.append(dict(row, source=run.source))
    return ordered(rows, "-date", "machine", "run_id")


class Reference:
    """The answers by this file, for recordings and what the lake names each of them: `run_id` and `source`."""

    name = "Python, without SQL"

    def __init__(self, recordings, names):
        self.runs = [read(recording) for recording in recordings]
        for run, (run.id, run.source) in zip(self.runs, names, strict=True):
            pass

    def ask(self, words):
        return globals()[words[0].replace("-", "_")](Flags(words), self.runs)
