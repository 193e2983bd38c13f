"""Tests of brickscope/recorder.py: with modules that only look like PyTorch's and a clock turned by hand, and with
PyTorch where it is installed.

    python3 python/test_brickscope.py            # --write makes the run that the tests in Rust read
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import types
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import brickscope  # noqa: E402
from brickscope import recorder  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

# What tests/analysis/import/pytorch.rs reads.
RUN = HERE.parent / "tests/data/import/brickscope-py.json"
TABLE = HERE.parent / "formats/src/import/kineto/bricks.toml"


class Clock:
    """A clock that only passes when somebody turns it."""

    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook

    def remove(self):
        self.hooks.remove(self.hook)


class Module:
    """As much of `torch.nn.Module` as a recorder uses."""

    def __init__(self, clock, nanos=0, **inner):
        self.clock, self.nanos, self.inner = clock, nanos, inner
        self.before, self.after, self.is_broken = [], [], False

    def children(self):
        return iter(self.inner.values())

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, module in self.inner.items():
            yield from module.named_modules(f"{prefix}.{name}" if prefix else name)

    def parameters(self):
        return iter(())

    def register_forward_pre_hook(self, hook):
        self.before.append(hook)
        return Handle(self.before, hook)

    def register_forward_hook(self, hook):
        self.after.append(hook)
        return Handle(self.after, hook)

    def __call__(self, *args):
        for hook in list(self.before):
            hook(self, args)
        result = self.forward(*args)
        for hook in list(self.after):
            hook(self, args, result)
        return result

    def forward(self, *args):
        for module in self.inner.values():
            module(*args)
        self.clock.now += self.nanos
        if self.is_broken:
            raise ValueError("broken")


class Linear(Module):
    pass


class Embedding(Module):
    pass


class LlamaRMSNorm(Module):
    pass


class LlamaAttention(Module):
    pass


class LlamaMLP(Module):
    pass


class LlamaDecoderLayer(Module):
    pass


class ModuleList(Module):
    pass


class TinyForCausalLM(Module):
    pass


class Ids:
    def __init__(self, tokens):
        self.shape = (1, tokens)


def model(clock):
    def layer():
        return LlamaDecoderLayer(
            clock, 40,
            input_layernorm=LlamaRMSNorm(clock, 500),
            self_attn=LlamaAttention(
                clock, 2_000, q_proj=Linear(clock, 3_000), k_proj=Linear(clock, 1_000),
                v_proj=Linear(clock, 1_000), o_proj=Linear(clock, 3_000)),
            mlp=LlamaMLP(
                clock, 300, gate_proj=Linear(clock, 7_000), up_proj=Linear(clock, 7_000),
                down_proj=Linear(clock, 8_000)))

    return TinyForCausalLM(
        clock, 700, embed_tokens=Embedding(clock, 900),
        layers=ModuleList(clock, 0, **{"0": layer(), "1": layer()}),
        lm_head=Linear(clock, 20_000))


def recorded(path):
    clock = Clock()
    tiny = model(clock)
    with brickscope.record(tiny, path, clock=clock) as rec:
        with rec.prefill(tokens=16):
            tiny(Ids(16))
            clock.now += 100
        for position in range(16, 24):
            with rec.decode(position=position):
                tiny(Ids(1))
    return json.loads(pathlib.Path(path).read_text())


def steady(run):
    """A run without what differs from machine to machine."""
    run["created"] = "2026-11-25T12:00:00Z"
    run["process"] = 1
    run["run"]["command"] = ["test_brickscope.py"]
    run["run"]["threads"] = 1
    run["lanes"][0]["tid"] = 1
    run["clock"] = {"source": "a clock turned by hand", "resolution_ns": 1}
    run["overhead"]["span_ns"] = 500.0
    run["imported"]["program"] = None
    return run


def written(folder):
    return steady(recorded(str(pathlib.Path(folder) / "run.json")))


def own(run, phase):
    return {row["name"]: (row["count"], row["exclusive_ns"]) for row in run["totals"] if row["phase"] == phase}


class WithModulesOfOurOwn(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = str(pathlib.Path(self.folder.name) / "run.json")

    def test_each_module_has_its_own_time(self):
        run = recorded(self.path)
        decode = own(run, "decode")
        self.assertEqual(decode["QkvProjection"], (8 * 6, 8 * 2 * 5_000))
        self.assertEqual(decode["Attention"], (8 * 2, 8 * 2 * 2_000))
        self.assertEqual(decode["Mlp"], (8 * 2, 8 * 2 * 300))
        self.assertEqual(decode["Residual"], (8 * 2, 8 * 2 * 40))
        self.assertEqual(decode["LmHead"], (8, 8 * 20_000))

    def test_bricks_and_what_is_in_none_of_them_are_the_wall(self):
        run = recorded(self.path)
        for phase in run["phases"]:
            bricks = sum(nanos for _, nanos in own(run, phase["phase"]).values())
            self.assertEqual(bricks, phase["attributed_ns"])
            self.assertEqual(bricks + phase["unattributed_ns"], phase["wall_ns"])
        prefill = run["phases"][0]
        # The model's own 700, and what the caller did in the pass.
        self.assertEqual((prefill["phase"], prefill["tokens"], prefill["unattributed_ns"]), ("prefill", 16, 800))
        layers = {row[4] for row in run["spans"]["rows"]}
        self.assertEqual(layers, {None, 0, 1})

    def test_secrets_on_the_command_line_are_left_out(self):
        words = ["x.py", "--api-key", "abc", "--tokens", "5", "HF_TOKEN=a", "--eos-token", "</s>", "--hf-token=z"]
        told = ["x.py", "--api-key", "***", "--tokens", "5", "HF_TOKEN=***", "--eos-token", "</s>", "--hf-token=***"]
        self.assertEqual(recorder._without_secrets(words), told)

    def test_the_run_that_rust_reads_is_what_is_written(self):
        self.assertEqual(written(self.folder.name), json.loads(RUN.read_text()))

    def test_calls_of_the_model_are_passes_by_their_tokens(self):
        clock = Clock()
        tiny = model(clock)
        with brickscope.record(tiny, self.path, clock=clock):
            tiny(Ids(5))
            tiny(Ids(1))
            tiny()
        run = json.loads(pathlib.Path(self.path).read_text())
        found = [(one["phase"], one["tokens"]) for one in run["passes"]]
        self.assertEqual(found, [("prefill", 5), ("decode", 1), ("prefill", 0)])
        lacks = [lack["reason"] for lack in run["imported"]["lacks"]]
        self.assertIn("the tokens of some passes: no argument of the model had them", lacks)

    def test_errors_end_no_pass_and_are_counted(self):
        clock = Clock()
        tiny = model(clock)
        broken = tiny.inner["layers"].inner["1"].inner["mlp"]
        with brickscope.record(tiny, self.path, clock=clock) as rec:
            broken.is_broken = True
            with self.assertRaises(ValueError):
                with rec.decode():
                    tiny(Ids(1))
            broken.is_broken = False
            with rec.decode():
                tiny(Ids(1))
                # An error that the caller catches inside of a pass.
                broken.is_broken = True
                with self.assertRaises(ValueError):
                    tiny.inner["layers"](Ids(1))
            with self.assertRaises(RuntimeError):
                with rec.decode(), rec.decode():
                    pass
        run = json.loads(pathlib.Path(self.path).read_text())
        self.assertEqual(len(run["passes"]), 1)
        self.assertTrue(run["imported"]["left_out"][0][1] > 0)
        for one in run["passes"]:
            self.assertEqual(one["attributed_ns"] + one["unattributed_ns"], one["wall_ns"])

    def test_a_call_that_raised_is_no_part_of_the_next_one(self):
        clock = Clock()
        tiny = model(clock)
        with brickscope.record(tiny, self.path, clock=clock):
            tiny.inner["lm_head"].is_broken = True
            with self.assertRaises(ValueError):
                tiny(Ids(1))
            tiny.inner["lm_head"].is_broken = False
            tiny(Ids(1))
        run = json.loads(pathlib.Path(self.path).read_text())
        self.assertEqual(len(run["passes"]), 1)
        self.assertEqual(own(run, "decode")["LmHead"], (1, 20_000))

    def test_forward_is_as_before_and_other_threads_are_left_out(self):
        clock = Clock()
        tiny = model(clock)
        with brickscope.record(tiny, self.path, clock=clock) as rec:
            with rec.decode():
                other = threading.Thread(target=tiny, args=(Ids(1),))
                other.start()
                other.join()
        run = json.loads(pathlib.Path(self.path).read_text())
        self.assertEqual(run["spans"]["rows"], [])
        self.assertEqual(run["imported"]["left_out"][0][0], "calls of modules on other threads")
        for _, module in tiny.named_modules():
            self.assertNotIn("forward", module.__dict__)

    def test_patterns_of_the_user_come_first(self):
        clock = Clock()
        tiny = model(clock)
        bricks = {"*.down_proj": "Mine", "LlamaRMSNorm": "MyNorm"}
        with brickscope.record(tiny, self.path, bricks=bricks, clock=clock) as rec:
            with rec.decode():
                tiny(Ids(1))
        names = own(json.loads(pathlib.Path(self.path).read_text()), "decode")
        self.assertTrue({"Mine", "MyNorm"} <= set(names) and "RmsNorm" not in names)

    def test_a_folder_becomes_a_run(self):
        folder = pathlib.Path(self.folder.name) / "runs" / "a"
        recorded_at = brickscope.record(model(Clock()), str(folder))
        with recorded_at:
            pass
        self.assertTrue((folder / "profile.json").exists())

    def test_a_folder_is_made_before_the_work_or_refused(self):
        folder = pathlib.Path(self.folder.name)
        file = folder / "new" / "run.json"
        with brickscope.record(model(Clock()), file):
            self.assertTrue(file.parent.is_dir())
        self.assertTrue(file.exists())
        with self.assertRaises(OSError):
            with brickscope.record(model(Clock()), file / "run.json"):
                self.fail("it was not recorded in vain")

    def test_a_device_has_its_own_times(self):
        clock, moments = Clock(), []

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                # The device works on while the host is further.
                self.at = 3 * clock.now
                moments.append(self.at)

            def synchronize(self):
                pass

            def elapsed_time(self, other):
                return (other.at - self.at) / 1e6

        weight = types.SimpleNamespace(is_cuda=True, device="cuda:0", dtype="torch.bfloat16")
        fake = types.SimpleNamespace(
            cuda=types.SimpleNamespace(Event=Event, get_device_name=lambda: "a GPU"), __version__="0")
        tiny = model(clock)
        tiny.parameters = lambda: iter([weight])
        before = sys.modules.get("torch")
        sys.modules["torch"] = fake
        try:
            with brickscope.record(tiny, self.path, clock=clock) as rec:
                with rec.decode():
                    tiny(Ids(1))
            tiny.parameters = lambda: iter([weight, types.SimpleNamespace(is_cuda=True, device="cuda:1", dtype="")])
            with brickscope.record(tiny, self.path + ".2.json", clock=clock) as rec:
                with rec.decode():
                    tiny(Ids(1))
        finally:
            sys.modules.pop("torch")
            if before is not None:
                sys.modules["torch"] = before
        run = json.loads(pathlib.Path(self.path).read_text())
        stream = run["devices"][0]["streams"][0]
        self.assertTrue(run["devices"][0]["includes_waits"])
        self.assertIn("waited for the host", run["imported"]["doubts"][0])
        own_ns = {row["name"]: row["exclusive_ns"] for row in stream["totals"]}
        self.assertEqual(own_ns["LmHead"], 3 * 20_000)
        one = stream["passes"][0]
        self.assertEqual(one["attributed_ns"] + one["unattributed_ns"], one["wall_ns"])
        self.assertEqual(own(run, "decode")["LmHead"], (1, 20_000))
        two = json.loads(pathlib.Path(self.path + ".2.json").read_text())
        self.assertNotIn("devices", two)
        self.assertTrue(any("2 devices" in lack["reason"] for lack in two["imported"]["lacks"]))


class Names(unittest.TestCase):
    def test_layers_are_in_names(self):
        self.assertEqual(brickscope.layer_of("model.layers.13.mlp"), 13)
        self.assertEqual(brickscope.layer_of("transformer.h.0"), 0)
        self.assertIsNone(brickscope.layer_of("model.norm"))
        self.assertIsNone(brickscope.layer_of("layers.x"))

    def test_the_table_is_that_of_the_import(self):
        section = TABLE.read_text().split("[range]")[1].split("[module]")[0]
        rules = dict(re.findall(r'^"([^"]*)" = "([^"]*)"', section, re.M))
        # Of steps and operations that aren't PyTorch's modules.
        others = ("gpu_model_runner", "onnx::")
        wanted = {
            name: brick for name, brick in rules.items()
            if brick and "*" not in name and not name.startswith(others)
        }
        self.assertEqual(brickscope.BRICKS, wanted)


@unittest.skipIf(torch is None, "PyTorch isn't installed")
class WithPyTorch(unittest.TestCase):
    def tiny(self):
        sys.path.insert(0, str(RUN.parent))
        import pytorch as example
        sys.path.pop(0)
        torch.manual_seed(0)
        return example.TinyForCausalLM().eval()

    def test_a_model_is_recorded(self):
        tiny = self.tiny()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = str(pathlib.Path(folder) / "run.json")
            with brickscope.record(tiny, path):
                tiny(torch.randint(0, 1000, (1, 32)))
                tiny(torch.randint(0, 1000, (1, 1)))
            run = json.loads(pathlib.Path(path).read_text())
        self.assertEqual([one["phase"] for one in run["passes"]], ["prefill", "decode"])
        self.assertEqual(own(run, "decode")["QkvProjection"][0], 6)
        self.assertEqual(run["model"]["layers"], 2)
        self.assertEqual(run["model"]["quantization"], "float32")

    def test_modules_have_names_in_a_trace(self):
        tiny = self.tiny()
        with torch.no_grad(), torch.profiler.profile() as profiler, brickscope.annotate(tiny):
            tiny(torch.randint(0, 1000, (1, 8)))
        names = {row.key for row in profiler.key_averages()}
        self.assertIn("layers.1.self_attn.q_proj", names)
        self.assertIn("lm_head", names)
        self.assertFalse(any(module._forward_hooks for module in tiny.modules()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with tempfile.TemporaryDirectory() as folder:
            RUN.write_text(json.dumps(written(folder), separators=(",", ":")) + "\n")
        subprocess.run([sys.executable, __file__], check=True)
    else:
        unittest.main()
