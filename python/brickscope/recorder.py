"""Records the forward passes of a PyTorch model as a run that every `brickscope` command reads.

    import brickscope

    with brickscope.record(model, "run.json") as rec:
        with rec.prefill(tokens=128):
            model(ids)
        with rec.decode(position=128):
            model(next_id)

Then `brickscope show run.json`. Without `prefill` and `decode`, each call of the model is a pass: of one token it decodes,
of more it reads a prompt. So `model.generate(ids)` can be recorded as it is.

A brick is a module, by its name or its class; its time is its own, without that of the modules inside of it. Times are two
readings of `time.perf_counter_ns` around the module's `forward`, which is wrapped while the recorder lasts. PyTorch's hooks
would do the same, but a module with hooks takes 3.4 µs longer to call; one whose `forward` is wrapped, 0.3 µs.

On a CUDA device these times cover launches only, so there each module also has a pair of `torch.cuda.Event`, which the
device's clock stamps.

`with brickscope.annotate(model):` names the modules in a trace of `torch.profiler`, so that `brickscope import` knows
the brick and the layer of each operation and kernel.

The file needs nothing but Python 3.9 and its standard library; it works with whatever version of PyTorch made the model.
"""

import contextlib
import datetime
import fnmatch
import json
import math
import os
import re
import sys
import tempfile
import threading
import time

__all__ = ["annotate", "brick_of", "layer_of", "record"]

SCHEMA_VERSION = 2
WAITS = "on the device, a module's time includes that in which the device waited for the host's next launch"
VERSION = "0.1.0"

# What modules are by the end of their name, as `[range]` in formats/src/import/kineto/bricks.toml has it.
BRICKS = {
    "mlp.wo": "DownProjection",
    "mlp.wi_0": "GateProjection",
    "mlp.wi_1": "UpProjection",
    "q_einsum": "QkvProjection",
    "kv_einsum": "QkvProjection",
    "qkv_einsum": "QkvProjection",
    "attn_vec_einsum": "OutputProjection",
    "gating_einsum": "GateUpProjection",
    "q_proj": "QkvProjection",
    "k_proj": "QkvProjection",
    "v_proj": "QkvProjection",
    "qkv_proj": "QkvProjection",
    "qkv": "QkvProjection",
    "linear_qkv": "QkvProjection",
    "attn.c_attn": "QkvProjection",
    "query_key_value": "QkvProjection",
    "Wqkv": "QkvProjection",
    "wq": "QkvProjection",
    "wk": "QkvProjection",
    "wv": "QkvProjection",
    "q_a_proj": "QkvProjection",
    "q_b_proj": "QkvProjection",
    "kv_a_proj_with_mqa": "QkvProjection",
    "kv_b_proj": "QkvProjection",
    "o_proj": "OutputProjection",
    "out_proj": "OutputProjection",
    "wo": "OutputProjection",
    "attn.c_proj": "OutputProjection",
    "attention.dense": "OutputProjection",
    "self_attention.dense": "OutputProjection",
    "self_attention.linear_proj": "OutputProjection",
    "attn.proj": "OutputProjection",
    "gate_up_proj": "GateUpProjection",
    "gate_proj": "GateProjection",
    "w1": "GateProjection",
    "up_proj": "UpProjection",
    "w3": "UpProjection",
    "mlp.c_fc": "UpProjection",
    "dense_h_to_4h": "UpProjection",
    "fc1": "UpProjection",
    "down_proj": "DownProjection",
    "w2": "DownProjection",
    "mlp.c_proj": "DownProjection",
    "dense_4h_to_h": "DownProjection",
    "fc2": "DownProjection",
    "attn_q": "QkvProjection",
    "attn_k": "QkvProjection",
    "attn_v": "QkvProjection",
    "attn_qkv": "QkvProjection",
    "attn_output": "OutputProjection",
    "ffn_gate": "GateProjection",
    "ffn_up": "UpProjection",
    "ffn_down": "DownProjection",
    "ffn_gate_inp": "Router",
    "token_embd": "Embedding",
    "attn_norm": "RmsNorm",
    "act_fn": "Activation",
    "mlp.act": "Activation",
    "mlp.gate": "Router",
    "block_sparse_moe.gate": "Router",
    "mlp.router": "Router",
    "mlp.experts": "Experts",
    "block_sparse_moe.experts": "Experts",
    "embed_tokens": "Embedding",
    "tok_embeddings": "Embedding",
    "wte": "Embedding",
    "wpe": "Embedding",
    "lm_head": "LmHead",
    "logits_processor": "LmHead",
    "embed_out": "LmHead",
    "rotary_emb": "RopeEmbedding",
    "ln_1": "LayerNorm",
    "ln_2": "LayerNorm",
    "ln_f": "LayerNorm",
    "input_layernorm": "RmsNorm",
    "post_attention_layernorm": "RmsNorm",
    "pre_feedforward_layernorm": "RmsNorm",
    "post_feedforward_layernorm": "RmsNorm",
    "q_norm": "RmsNorm",
    "k_norm": "RmsNorm",
    "model.norm": "RmsNorm",
    "norm": "RmsNorm",
    "attention_norm": "RmsNorm",
    "ffn_norm": "RmsNorm",
    "sampler": "Sampling",
    "dot_general": "MatMul",
    "conv_general_dilated": "Conv",
    "psum": "AllReduce",
    "all_gather": "Communication",
    "all_to_all": "Communication",
    "ppermute": "Communication",
    "reduce_scatter": "Communication",
}

# What modules are by their class. It is asked first: a norm's name doesn't say which norm it is.
CLASSES = {
    "*RMSNorm*": "RmsNorm",
    "*LayerNorm*": "LayerNorm",
    "*Rotary*": "RopeEmbedding",
    "*SiLU*": "Activation",
    "*GELU*": "Activation",
}

# Modules of which something is computed outside of the modules inside: the scores, the products of two branches, sums.
CONTAINERS = {
    "*Attention*": "Attention",
    "*MLP*": "Mlp",
    "*FeedForward*": "Mlp",
    "*Layer": "Residual",
    "*Block": "Residual",
}

CATEGORIES = {
    "RmsNorm": "Norm", "LayerNorm": "Norm",
    "QkvProjection": "Attention", "RopeEmbedding": "Attention", "AttentionScore": "Attention",
    "AttentionSoftmax": "Attention", "AttentionOutput": "Attention", "OutputProjection": "Attention",
    "Attention": "Attention",
    "GateProjection": "Ffn", "UpProjection": "Ffn", "Activation": "Ffn", "DownProjection": "Ffn",
    "GateUpProjection": "Ffn", "Router": "Ffn", "Experts": "Ffn", "Mlp": "Ffn",
}

LISTS = ("layers", "layer", "h", "blocks", "block")


def layer_of(name):
    """The transformer layer of a module by its name: 3 of `model.layers.3.mlp`; None outside of layers."""
    parts = name.split(".")
    for part, number in zip(parts, parts[1:]):
        if part in LISTS and number.isdigit() and int(number) < 65536:
            return int(number)
    return None


def brick_of(name, module, bricks=None):
    """The brick of a module, by the user's patterns, its class or its name; None if it has none of its own."""
    kind = type(module).__name__
    ends = [name] + [name.split(".", n)[n] for n in range(1, name.count(".") + 1)]
    for pattern, brick in (bricks or {}).items():
        if any(fnmatch.fnmatchcase(end, pattern) for end in ends + [kind]):
            return brick
    for pattern, brick in CLASSES.items():
        if fnmatch.fnmatchcase(kind, pattern):
            return brick
    for end in ends:
        if end in BRICKS:
            return BRICKS[end]
    is_leaf = next(iter(module.children()), None) is None
    for pattern, brick in CONTAINERS.items():
        if fnmatch.fnmatchcase(kind, pattern):
            return brick
    return kind if is_leaf else None


@contextlib.contextmanager
def annotate(model, bricks=None):
    """Names the modules of `model` in a trace of torch.profiler while it lasts."""
    range_of = sys.modules["torch"].profiler.record_function
    open_ranges, handles = [], []

    def enter(name):
        def before(module, *_):
            one = range_of(name)
            one.__enter__()
            open_ranges.append((module, one))
        return before

    def leave(module, *_):
        # Modules that raised have no end of their own.
        while open_ranges:
            of, one = open_ranges.pop()
            one.__exit__(None, None, None)
            if of is module:
                break

    try:
        for name, module in model.named_modules():
            is_leaf = next(iter(module.children()), None) is None
            # Containers outside of layers would be bricks around all others.
            if name and (layer_of(name) is not None or (is_leaf and brick_of(name, module, bricks))):
                handles.append(module.register_forward_pre_hook(enter(name)))
                handles.append(module.register_forward_hook(leave))
        yield
    finally:
        for handle in handles:
            handle.remove()
        while open_ranges:
            open_ranges.pop()[1].__exit__(None, None, None)


def record(model, path=None, bricks=None, clock=time.perf_counter_ns):
    """A recorder of `model`, to be used in a `with`; at its end the run is written to `path`, which the recorder has, too.

    path    a file, such as `run.json`; or a folder (without `.json`), which becomes a run with its `profile.json`. By default
            a new folder in `brickscope-runs`, where the command looks for runs
    bricks  patterns of names or classes of modules, with their bricks; they are asked first
    clock   a clock in nanoseconds
    """
    return Recorder(model, path, bricks, clock)


class Recorder:
    """Records passes. Made by `record`."""

    def __init__(self, model, path=None, bricks=None, clock=time.perf_counter_ns):
        self.path = _new_folder() if path is None else os.path.abspath(path)
        self._model, self._clock = model, clock
        self._file = _file_of(self.path)
        self._modules, self._wrapped, self._passes, self._pass = [], [], [], None
        self._unfinished, self._elsewhere, self._refused = 0, 0, 0
        self._thread = threading.get_ident()
        self._bricks = bricks or {}
        self._cuda, self._why_no_device = self._find_device()
        self._cost = None

    def __enter__(self):
        # First, so that a folder that can't be made is an error before the work and not after it.
        os.makedirs(os.path.dirname(self._file), exist_ok=True)
        named = [(name, module) for name, module in self._model.named_modules() if name]
        for name, module in named:
            brick = brick_of(name, module, self._bricks)
            if brick is not None:
                self._time(module, brick, layer_of(name))
        self._wrap(self._model, self._of_model)
        return self

    def __exit__(self, kind, *_):
        for module, before in reversed(self._wrapped):
            if before is None:
                del module.__dict__["forward"]
            else:
                module.forward = before
        if self._pass is not None:
            self._abandon()
        if kind is None or self._passes:
            self._cost = self._measure_cost()
            self._write()
        return False

    @contextlib.contextmanager
    def prefill(self, tokens=None, position=0):
        """A pass that reads a prompt of so many tokens."""
        with self._given("prefill", tokens, position):
            yield

    @contextlib.contextmanager
    def decode(self, position=None, tokens=1):
        """A pass that generates a token after so many others."""
        with self._given("decode", tokens, position):
            yield

    @property
    def passes(self):
        """How many passes were recorded so far."""
        return len(self._passes)

    # The hot path.

    def _time(self, module, brick, layer):
        index = len(self._modules)
        clock, get_ident, thread, cuda = self._clock, threading.get_ident, self._thread, self._cuda

        def around(forward):
            def timed(*args, **kwargs):
                current = self._pass
                if current is None or get_ident() != thread:
                    self._elsewhere += current is not None
                    return forward(*args, **kwargs)
                event = cuda() if cuda else None
                start = clock()
                try:
                    result = forward(*args, **kwargs)
                except BaseException:
                    self._unfinished += 1
                    raise
                end = clock()
                if current is self._pass:
                    current.spans.append((index, start, end, event, cuda() if cuda else None))
                else:
                    self._unfinished += 1
                return result
            return timed

        if self._wrap(module, around):
            self._modules.append((brick, layer))

    def _wrap(self, module, around):
        """Replaces `forward` of this one module; returns whether it can be replaced."""
        before = module.__dict__.get("forward")
        try:
            module.forward = around(module.forward)
        except Exception:
            # A compiled module of TorchScript, for one.
            self._refused += 1
            return False
        self._wrapped.append((module, before))
        return True

    # Passes.

    @contextlib.contextmanager
    def _given(self, phase, tokens, position):
        if self._pass is not None:
            raise RuntimeError("brickscope: a pass can't begin inside of another pass")
        self._begin(phase, tokens, position)
        try:
            yield
        except BaseException:
            self._abandon()
            raise
        self._end()

    def _of_model(self, forward):
        def called(*args, **kwargs):
            if self._pass is not None or threading.get_ident() != self._thread:
                return forward(*args, **kwargs)
            each, tokens = _tokens(args, kwargs)
            self._begin("decode" if each == 1 else "prefill", tokens, None)
            try:
                result = forward(*args, **kwargs)
            except BaseException:
                self._abandon()
                raise
            self._end()
            return result
        return called

    def _begin(self, phase, tokens, position):
        current = _Pass(phase, tokens, position)
        current.event = self._cuda() if self._cuda else None
        current.start = self._clock()
        self._pass = current

    def _end(self):
        current = self._pass
        current.end = self._clock()
        if self._cuda:
            current.last_event = self._cuda()
        self._pass = None
        self._passes.append(current)
        if self._cuda:
            # Events are read back between passes, so that they don't pile up.
            current.last_event.synchronize()
            current.read_back()

    def _abandon(self):
        self._pass = None
        self._unfinished += 1

    # The device.

    def _find_device(self):
        devices = {str(p.device) for p in self._model.parameters() if getattr(p, "is_cuda", False)}
        kinds = {str(p.device).split(":")[0] for p in self._model.parameters() if hasattr(p, "device")}
        self._kind = ", ".join(sorted(kinds - {"meta"})).upper() or "CPU"
        others = kinds - {"cpu", "cuda", "meta"}
        if others:
            return None, "its weights are on %s, whose clock isn't read here" % ", ".join(sorted(others))
        if not devices:
            return None, None
        if len(devices) > 1:
            return None, "its weights are on %d devices, whose clocks have no common event" % len(devices)
        torch = sys.modules["torch"]

        def event():
            one = torch.cuda.Event(enable_timing=True)
            one.record()
            return one

        return event, None

    def _measure_cost(self):
        """How much longer a call of a timed module takes, in nanoseconds. None where it can't be told."""
        if not self._modules or self._cuda:
            return None
        probe, cuda, wrapped, counts = _Probe(), self._cuda, self._wrapped, (self._elsewhere, self._unfinished)
        self._cuda, self._wrapped = None, []

        def fastest():
            # Of several, since others may use the CPU.
            best = math.inf
            for _ in range(5):
                start = time.perf_counter_ns()
                for _ in range(1000):
                    probe.forward(None)
                best = min(best, (time.perf_counter_ns() - start) / 1000)
                if self._pass is not None:
                    del self._pass.spans[:]
            return best

        plain = fastest()
        self._pass = _Pass("decode", 1, None)
        self._time(probe, *self._modules[0])
        self._modules.pop()
        cost = fastest() - plain
        self._pass, self._cuda, self._wrapped = None, cuda, wrapped
        self._elsewhere, self._unfinished = counts
        return cost if cost > 0 else None

    # The run.

    def _basis(self):
        if self._cost is not None:
            return "what timing adds to a call of a module: the least of five means of 1000 calls, after the run"
        if self._cuda:
            return "absent: each module also makes two events of the device, and what those cost was not measured"
        return "absent: it was not measured, or is less than could be measured"

    def _write(self):
        _save(self._file, self.profile())

    def profile(self):
        """The run, in the form of its file."""
        names = _Names()
        origin = min((p.start for p in self._passes), default=0)
        host = _Table(names, self._modules)
        device = _Table(names, self._modules)
        for serial, one in enumerate(self._passes, 1):
            given = dict(serial=serial, phase=one.phase, tokens=one.tokens or 0, position=one.position or 0)
            spans = [(index, start, end) for index, start, end, _, _ in one.spans]
            host.add_pass(given, one.start - origin, one.end - origin,
                          [(index, start - origin, end - origin) for index, start, end in spans], 0)
            if one.device is not None:
                # On the axis of the host only as far as the first event was stamped right away.
                at = one.start - origin
                wall, stamped = one.device
                device.add_pass(given, at, at + wall, [(i, at + s, at + e) for i, s, e in stamped], 2)
        torch = sys.modules.get("torch")
        version = getattr(torch, "__version__", None)
        lacks = []
        if any(one.tokens is None for one in self._passes):
            lacks.append("the tokens of some passes: no argument of the model had them")
        if any(one.position is None for one in self._passes):
            lacks.append("positions: nobody stated them")
        lacks.append("work: FLOPs and bytes")
        if self._why_no_device:
            lacks.append("times of the device: " + self._why_no_device)
        if self._cuda or self._why_no_device:
            lacks.append("what the host's times cover beyond launches: the device works on after a module returns")
        left_out = [[why, count] for why, count in [
            ("calls of modules on other threads", self._elsewhere),
            ("modules whose forward can't be replaced", self._refused),
            ("modules and passes that began and never ended", self._unfinished),
        ] if count]
        generated = sum(one.tokens or 0 for one in self._passes if one.phase == "decode")
        prompt = sum(one.tokens or 0 for one in self._passes if one.phase == "prefill")
        weights = list(self._model.parameters())
        layers = [layer for _, layer in self._modules if layer is not None]
        kind = type(self._model).__name__
        profile = _profile(
            "brickscope.py",
            host,
            run={
                "command": _without_secrets(sys.argv),
                "backend": "PyTorch on " + self._kind,
                "threads": _threads(torch),
                "prompt_tokens": prompt,
                "generated_tokens": generated,
                "seed": None,
            },
            model={
                "path": "",
                "name": kind,
                "architecture": "",
                "quantization": _kinds(weights),
                "file_bytes": 0,
                "parameters": sum(_size(weight) for weight in weights),
                "layers": max(layers) + 1 if layers else 0,
                "embedding_length": 0,
                "synthetic": False,
            },
            overhead={
                "span_ns": self._cost,
                "spans": len(host.spans),
                "basis": self._basis(),
            },
            lanes=[{"name": threading.current_thread().name, "tid": threading.get_native_id()}],
            imported={
                "format": "brickscope.py",
                "file": os.path.basename(self.path),
                "program": "PyTorch %s" % version if version else None,
                "lacks": [{"reason": reason} for reason in lacks],
                **({"doubts": [WAITS]} if device.passes else {}),
                "left_out": left_out,
            },
        )
        if device.passes:
            profile["devices"] = [_device(torch, device)]
        return profile


class _Pass:
    def __init__(self, phase, tokens, position):
        self.phase, self.tokens, self.position = phase, tokens, position
        self.start = self.end = 0
        self.event = self.last_event = self.device = None
        self.spans = []

    def read_back(self):
        def since(event):
            # Milliseconds, which the device states to about half a microsecond.
            return max(0, round(self.event.elapsed_time(event) * 1e6))

        stamped = [(index, since(begin), since(end)) for index, _, _, begin, end in self.spans]
        self.device = (since(self.last_event), stamped)
        self.spans = [(index, start, end, None, None) for index, start, end, _, _ in self.spans]
        self.event = self.last_event = None


class _Probe:
    """A module that does nothing, to measure what timing it costs."""

    def forward(self, given):
        return given


class _Names:
    def __init__(self):
        self.rows, self._index = [], {}

    def index(self, brick):
        if brick not in self._index:
            self._index[brick] = len(self.rows)
            self.rows.append({"name": brick, "kind": "brick", "category": CATEGORIES.get(brick, "Other")})
        return self._index[brick]


class _Table:
    """The passes and spans of the host or of a device."""

    COLUMNS = ["name", "source", "lane", "pass", "layer", "parent", "start_ns", "duration_ns",
               "exclusive_ns", "elements", "flops", "bytes"]

    def __init__(self, names, modules):
        self._names, self._modules = names, modules
        self.passes, self.spans, self._phase = [], [], {}

    def add_pass(self, given, begin, end, spans, source):
        # They end in the order in which they were recorded; as a tree, outer ones come first.
        order = sorted(range(len(spans)), key=lambda at: (spans[at][1], -spans[at][2], -at))
        stack, attributed = [], 0
        for index, start, stop in (spans[at] for at in order):
            while stack and self.spans[stack[-1]][6] + self.spans[stack[-1]][7] <= start:
                stack.pop()
            duration = stop - start
            parent = stack[-1] if stack else None
            if parent is None:
                attributed += duration
            else:
                self.spans[parent][8] -= duration
            brick, layer = self._modules[index]
            stack.append(len(self.spans))
            self.spans.append([self._names.index(brick), source, 0, given["serial"], layer, parent,
                               start, duration, duration, 0, None, None])
        wall = end - begin
        self.passes.append(dict(given, lane=0, start_ns=begin, wall_ns=wall, attributed_ns=attributed,
                                unattributed_ns=wall - attributed, disturbance=None, is_left_out=False))
        self._phase[given["serial"]] = given["phase"]

    def add_outside(self, brick, start, stop, source=0):
        """A span that is in no pass."""
        duration = stop - start
        self.spans.append([self._names.index(brick), source, 0, None, None, None,
                           start, duration, duration, 0, None, None])

    def names(self):
        """Names of bricks, in the order of their numbers."""
        return self._names.rows

    def phases(self):
        rows = []
        for phase in ("prefill", "decode"):
            passes = [one for one in self.passes if one["phase"] == phase]
            if passes:
                fields = ("tokens", "wall_ns", "attributed_ns", "unattributed_ns")
                sums = {field: sum(one[field] for one in passes) for field in fields}
                rows.append(dict(phase=phase, passes=len(passes), disturbed=0, unwatched=None, **sums))
        return rows

    def totals(self, source):
        groups = {}
        for span in self.spans:
            groups.setdefault((self._phase.get(span[3]), span[0]), []).append((span[7], span[8]))
        rows = []
        for (phase, name), times in groups.items():
            row = self._names.rows[name]
            total = {"phase": phase, "kind": "brick", "category": row["category"], "source": source}
            total.update(_statistics(row["name"], times))
            rows.append(total)
        return rows

    def span_table(self):
        sources = ["host", "host_order", "device"]
        return {"columns": self.COLUMNS, "sources": sources, "rows": self.spans}


def _new_folder():
    """A folder in `brickscope-runs` for a run of now, by its time as the command names its own."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    path, nth = os.path.abspath(os.path.join("brickscope-runs", now)), 1
    while os.path.exists(path if nth == 1 else "%s-%d" % (path, nth)):
        nth += 1
    return path if nth == 1 else "%s-%d" % (path, nth)


def _file_of(path):
    """The file of a path: itself if it is one, or `profile.json` in the folder that it is to be."""
    path = os.path.abspath(path)
    return path if path.endswith(".json") else os.path.join(path, "profile.json")


def _profile(recorder, table, **fields):
    """What is the same in each run, whichever of these files recorded it, and the fields that aren't."""
    profile = {
        "schema_version": SCHEMA_VERSION,
        "brickscope_version": VERSION,
        "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "dropped": {},
        "machine": None,
        "ceilings": None,
        "ceilings_absent": {"reason": "%s doesn't measure the machine" % recorder},
        "process": os.getpid(),
        "clock": _clock_info(),
        "sync_mode": "deferred",
        "counters_absent": {"reason": "%s reads no hardware counters" % recorder},
        "other_load_absent": {"reason": "%s doesn't watch other programs" % recorder},
        "phases": table.phases(),
        "totals": table.totals("host"),
        "passes": table.passes,
        "tiles": [],
        "checksums": [],
        "observed": {"l2_cache_hit_rate": None, "zero_copy": None},
        "names": table.names(),
        "spans": table.span_table(),
    }
    profile.update(fields)
    return profile


def _save(path, profile, parts=()):
    """Writes a run as a whole or not at all. Its parts, which may be a million, are rows of text."""
    folder = os.path.dirname(path)
    handle, partial = tempfile.mkstemp(prefix=".", suffix=".partial", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            text = json.dumps(profile, indent=None, separators=(",", ":"))
            if parts:
                file.write(text[:-1] + ',"parts":[')
                for nth, part in enumerate(parts):
                    file.write("," + part if nth else part)
                text = "]}"
            file.write(text + "\n")
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(partial, 0o666 & ~umask)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def _statistics(name, times):
    durations = [duration for duration, _ in times]
    count, mean = len(durations), sum(durations) / len(durations)
    squares = math.fsum((duration - mean) ** 2 for duration in durations)
    buckets = {}
    for duration in durations:
        bucket = _bucket(duration)
        buckets[bucket] = buckets.get(bucket, 0) + 1

    def percentile(quantile):
        # With fewer spans, none might lie above the true percentile.
        if count < math.ceil(math.log(0.01) / math.log(quantile)):
            return None
        rank, seen = max(1, math.ceil(quantile * count)), 0
        for (lowest, width), number in sorted(buckets.items()):
            seen += number
            if seen >= rank:
                return min(max(lowest + (width >> 1), min(durations)), max(durations))

    return {
        "name": name,
        "count": count,
        "total_ns": sum(durations),
        "exclusive_ns": sum(own for _, own in times),
        "min_ns": min(durations),
        "max_ns": max(durations),
        "squared_deviations": squares,
        "total_elements": 0,
        "total_flops": None,
        "total_bytes": None,
        "histogram": [[lowest, number] for (lowest, _), number in sorted(buckets.items())],
        "std_dev_ns": math.sqrt(squares / (count - 1)) if count > 1 else None,
        "p50_ns": percentile(0.5),
        "p90_ns": percentile(0.9),
        "p95_ns": percentile(0.95),
        "p99_ns": percentile(0.99),
    }


def _bucket(value):
    """The lowest value of the bucket of a value, and the bucket's width: 64 for each power of two."""
    shift = max(0, value.bit_length() - 7)
    return (value >> shift << shift, 1 << shift)


def _tokens(args, kwargs):
    """How many tokens of each sequence a model is given, and of all in the batch: by the shape of ids, or of embeddings."""
    for key in ("input_ids", "inputs_embeds", "ids", "tokens", "x"):
        if kwargs.get(key) is not None:
            args = (kwargs[key],)
            break
    shape = getattr(args[0], "shape", None) if args else None
    if not shape or len(shape) > 3:
        return None, None
    if len(shape) == 1:
        return int(shape[0]), int(shape[0])
    return int(shape[1]), int(shape[0]) * int(shape[1])


_SECRET = re.compile(r"(token|secret|password|passwd|passphrase|credentials?|(api|access|secret|private|auth)[-_.]?key|_pat)$", re.I)
_OF_TEXT = re.compile(r"(bos|eos|eot|pad|unk|sep|cls|mask|per|special|max)[-_.]?token$", re.I)


def _without_secrets(words):
    """A command line with *** in the place of values whose names say that they are secret, as the command has it."""
    is_secret = lambda name: bool(_SECRET.search(name)) and not _OF_TEXT.search(name)
    told, is_value = [], False
    for word in map(str, words):
        name, equals, _ = word.partition("=")
        if is_value and not word.startswith("--"):
            told.append("***")
            is_value = False
            continue
        is_value = word.startswith("-") and not equals and is_secret(word)
        told.append(name + "=***" if equals and is_secret(name) else word)
    return told


def _threads(torch):
    try:
        return int(torch.get_num_threads())
    except AttributeError:
        # Unknown.
        return 0


def _kinds(weights):
    kinds = sorted({str(getattr(weight, "dtype", "")).replace("torch.", "") for weight in weights})
    return ", ".join(kind for kind in kinds if kind)


def _size(weight):
    try:
        return int(weight.numel())
    except AttributeError:
        return 0


def _clock_info(clock="perf_counter"):
    info = time.get_clock_info(clock)
    source = "Python's %s_ns, %s" % (clock, info.implementation)
    return {"source": source, "resolution_ns": max(1, round(info.resolution * 1e9))}


def _device(torch, table):
    try:
        name = torch.cuda.get_device_name()
    except Exception:
        name = "a CUDA device"
    driver = getattr(getattr(torch, "version", None), "cuda", None)
    stream = {
        "name": "stream of the model",
        "dropped": {},
        "phases": table.phases(),
        "totals": table.totals("device"),
        "latency": {"first_token": _no_durations(), "per_token": _no_durations()},
        "passes": table.passes,
        "spans": table.span_table(),
    }
    return {
        "name": name,
        "api": "cuda",
        "driver": "CUDA %s" % driver if driver else "driver not stated",
        "ticks": {"ns_per_tick": 1.0, "resolution_ns": 500.0, "valid_bits": 64},
        "alignment": None,
        "last_alignment": None,
        "stamp_absent": {"reason": "brickscope.py doesn't measure what an event costs"},
        "unsettled_passes": 0,
        "lost_passes": 0,
        "disordered_passes": 0,
        "includes_waits": True,
        "lost": None,
        "streams": [stream],
    }


def _no_durations():
    return {"count": 0, "mean_ns": None, "std_dev_ns": None, "min_ns": None, "max_ns": None,
            "p50_ns": None, "p90_ns": None, "p95_ns": None, "p99_ns": None}
