"""A trace of 2 GB in the form of PyTorch's profiler: how long its import takes, how much memory, and whether it finds all.

Nine of ten events are functions of Python, as `with_stack=True` makes them. 40 steps, each of 36 layers, on one thread and two
streams. The sums are counted while it is written.
"""

import gzip
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

from shown import BRICKSCOPE, FOLDER, told

BYTES = int(float(os.environ.get("BRICKSCOPE_LARGE", 2e9)))
MOST_SECONDS, MOST_BYTES = 60, 1 << 30
STEPS, LAYERS = 40, 36
ATTENTION = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<128>, cute::C<128> >, 128, "
    "cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(flash::Params)")
# The operation, its kernel, grid, block and shared memory.
KERNELS = [
    ("aten::mm", "nvjet_tst_128x64_64x9_1x2_h_bz_coopA_TNT", (64, 2, 1), (384, 1, 1), 213248),
    ("vllm::unified_attention_with_output", ATTENTION, (132, 1, 1), (384, 1, 1), 200000),
    ("_C::fused_add_rms_norm", "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long, float, int, int)",
     (32, 1, 1), (1024, 1, 1), 0),
    ("_C::silu_and_mul", "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, true>(int)",
     (32, 1, 1), (1024, 1, 1), 0),
    ("aten::copy_", "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda()::{lambda()#3}>",
     (16, 1, 1), (128, 1, 1), 0),
]
FILES = ["torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py", "vllm/v1/worker/gpu_model_runner.py", "inspect.py",
         "vllm/model_executor/layers/linear.py", "torch/utils/_contextlib.py", "vllm/attention/layer.py", "enum.py"]
BUILT_IN = ["<built-in method append of list object at 0x7f{:08x}>", "<built-in function next>", "<built-in function len>",
            "<built-in method linear of type object at 0x7f{:08x}>", "<built-in function getattr>"]


def us(nanos):
    return f"{nanos // 1000}.{nanos % 1000:03d}"


class Trace:
    """Writes events and counts what is in them. `pid` is that of the host's only thread."""

    pid = 251

    def __init__(self, file):
        self.file, self.parts, self.index, self.ids, self.comma = file, [], 0, 0, "\n"
        self.functions = self.kernels = self.kernel_ns = 0

    def event(self, text):
        self.parts.append(f"{self.comma}  {{\n    {text}\n  }}")
        self.comma = ",\n"
        self.index += 1
        if len(self.parts) > 20_000:
            self.flush()

    def flush(self):
        self.file.write("".join(self.parts).encode())
        self.parts.clear()

    def timed(self, cat, name, start, nanos, rest):
        self.event(
            f'"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {self.pid}, "tid": {self.pid},\n    "ts": {us(start)}, '
            f'"dur": {us(nanos)},\n    "args": {{\n      {rest}, "Ev Idx": {self.index}\n    }}')

    def function(self, name, start, nanos, parent):
        self.ids += 1
        is_module = name.startswith("nn.Module: ")
        self.functions += not is_module
        more = f'"Python module id": {self.ids}, ' if is_module else ""
        self.timed("python_function", name, start, nanos, f'{more}"Python parent id": {parent}, "Python id": {self.ids}')
        return self.ids

    def launch(self, number, of, start, nanos):
        """An operation in an operation, a call, its kernel, and the arrow between the two."""
        op, kernel, grid, block, shared = of
        for nth, name in enumerate((op, op + "_inner")):
            self.timed(
                "cpu_op", name, start + 50 * nth, 5000 - 200 * nth,
                f'"External id": {number + (nth << 30)}, "Record function id": 0, "Concrete Inputs": ["", "", ""], '
                '"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Strides": [[4096, 1], [1, 4096], []], '
                '"Input Dims": [[32, 4096], [4096, 6144], []]')
        self.timed("cuda_runtime", "cudaLaunchKernel", start + 1000, 2500,
                   f'"External id": {number}, "cbid": 211, "correlation": {number}')
        self.kernels += 1
        self.kernel_ns += nanos
        at = start + 6000
        self.event(
            f'"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7,\n    "ts": {us(at)}, "dur": {us(nanos)},\n'
            f'    "args": {{\n      "External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, '
            f'"correlation": {number}, "registers per thread": 168, "shared memory": {shared}, "blocks per SM": 0.242424, '
            f'"warps per SM": 2.909091, "grid": {list(grid)}, "block": {list(block)}, "est. achieved occupancy %": 5\n    }}')
        for phase, pid, tid, when, more in (("s", self.pid, self.pid, start + 1000, ""), ("f", 0, 7, at, ', "bp": "e"')):
            self.event(f'"ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {us(when)},\n'
                       f'    "cat": "ac2g", "name": "ac2g"{more}')


def write(file, size):
    """Writes a trace of some size, and says what is in it."""
    rng = random.Random(1)
    names = [f"{rng.choice(FILES)}({rng.randrange(10, 3000)}): {rng.choice(('forward', 'call', 'get', 'apply'))}_{number}"
             for number in range(3000)]
    names += [name.format(rng.randrange(1 << 32)) for name in BUILT_IN * 50]
    trace = Trace(file)
    trace.parts.append(
        '\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n    {\n      "id": 0, "name": "NVIDIA H200", '
        '"totalGlobalMem": 150000000000\n    }\n  ],\n  "with_stack": 1,\n  "baseTimeNanoseconds": 1790857026000000000,\n'
        '  "displayTimeUnit": "ms",\n  "traceEvents": [')
    # Some 245 bytes an event.
    groups = max(1, size // 245 // STEPS // LAYERS // 74)
    layer_ns = groups * 74 * 160
    step_ns = LAYERS * layer_ns + 20_000
    begin = 4_909_733_315_089_289
    for step in range(STEPS):
        now = begin + step * (step_ns + 15_000)
        trace.timed("user_annotation", "execute_context_0(0)_generation_32(32)", now, step_ns, f'"External id": {step + 1}')
        top = trace.function("vllm/v1/worker/gpu_model_runner.py(2931): execute_model", now + 500, step_ns - 1000, 0)
        for layer in range(LAYERS):
            start = now + 10_000 + layer * layer_ns
            module = trace.function(f"nn.Module: Qwen3DecoderLayer_{layer}", start, layer_ns - 100, top)
            group_ns = (layer_ns - 200) // groups
            for group in range(groups):
                at, outer = start + 50 + group * group_ns, module
                for depth in range(7):
                    outer = trace.function(rng.choice(names), at + depth * 20, group_ns - 60 - depth * 40, outer)
                for leaf in range(55):
                    trace.function(rng.choice(names), at + 200 + leaf * 25, 20, outer)
                of = KERNELS[(group + layer) % len(KERNELS)]
                trace.launch(trace.kernels + 1, of, at + 2000, rng.randrange(1500, 5500))
    trace.parts.append('\n  ],\n  "traceName": "/tmp/rank0.pt.trace.json"\n}\n')
    trace.flush()
    return {"functions": trace.functions, "kernels": trace.kernels, "kernel_ns": trace.kernel_ns, "step_ns": STEPS * step_ns,
            "events": trace.index}


def timed(*words):
    """Seconds, those of its CPUs, the most bytes of memory, the exit code and what a run of the command says."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen([BRICKSCOPE, *map(str, words)], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begun
        said.seek(0)
        return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, child.returncode, said.read().decode()[-500:]


def rows_of(path, found, folder):
    run = folder / "run"
    seconds, of_cpus, most, code, said = timed("import", path, "--out", run)
    rows = [
        (f"seconds, {MOST_SECONDS} or fewer", "", f"{seconds:.1f}, {of_cpus:.1f} of them on a CPU", seconds <= MOST_SECONDS),
        (f"MiB of memory, {MOST_BYTES >> 20} or fewer", "", most >> 20, most <= MOST_BYTES),
        ("it is imported", 0, f"{code} {said if code else ''}", code == 0),
    ]
    if code:
        return rows
    profile = json.loads((run / "profile.json").read_text())
    functions = "functions of Python that aren't modules"
    left_out = dict(map(tuple, profile["imported"]["left_out"]))
    kernels = {number for number, name in enumerate(profile["names"]) if name["kind"] == "kernel"}
    nanos = []
    for stream in (stream for device in profile["devices"] for stream in device["streams"]):
        name, duration = (stream["spans"]["columns"].index(column) for column in ("name", "duration_ns"))
        nanos += [row[duration] for row in stream["spans"]["rows"] if row[name] in kernels]
    shutil.rmtree(run)
    return rows + [
        (what, ours, theirs, ours == theirs) for what, ours, theirs in (
            ("functions left out", found["functions"], left_out.pop(functions, 0)),
            ("others left out", {}, left_out),
            ("passes", STEPS, len(profile["passes"])),
            ("their nanoseconds", found["step_ns"], sum(of["wall_ns"] for of in profile["passes"])),
            ("kernels", found["kernels"], len(nanos)),
            ("their nanoseconds", found["kernel_ns"], sum(nanos)),
        )
    ]


def check():
    FOLDER.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        folder = FOLDER / folder
        free = shutil.disk_usage(folder).free
        if free < 2 * BYTES:
            print(f"skipped: a trace of {BYTES / 1e9:.1f} GB doesn't fit into {free / 1e9:.1f} GB")
            return 0
        for name, opened in (("large.pt.trace.json", open), ("large.pt.trace.json.gz", gzip.open)):
            path = folder / name
            more = {"compresslevel": 1} if opened is gzip.open else {}
            with opened(path, "wb", **more) as file:
                found = write(file, BYTES)
            title = f"{name}, {path.stat().st_size / 1e9:.2f} GB, {found['events']} events"
            wrong += told(title, rows_of(path, found, folder))
            path.unlink()
    return wrong
