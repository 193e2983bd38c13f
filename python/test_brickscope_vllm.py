"""Tests of brickscope_vllm.py: with an engine that only looks like vLLM's and a clock turned by hand, and with vLLM's
own classes where it is installed.

    python3 python/test_brickscope_vllm.py
"""

import asyncio
import concurrent.futures
import contextlib
import enum
import gc
import importlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest
import weakref
from types import SimpleNamespace as Of
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import brickscope_vllm as plugin  # noqa: E402

try:
    import vllm  # noqa: F401
except ImportError:
    vllm = None


class Clock:
    """A clock that only passes when somebody turns it."""

    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        return self.now


class Finish(enum.Enum):
    STOP = 0
    LENGTH = 1


class Status(enum.Enum):
    FINISHED_ABORTED = 0


class Request:
    def __init__(self, request_id, prompt, most):
        self.request_id, self.num_prompt_tokens, self.most = request_id, prompt, most
        self.num_computed, self.answer, self.is_new, self.has_finished = 0, 0, True, False
        self.resumable = False

    @property
    def num_tokens(self):
        return self.num_prompt_tokens + self.answer

    def is_finished(self):
        return self.has_finished


class Scheduler:
    """Takes requests in order, 8 tokens in a step, and knows of no blocks."""

    def __init__(self, clock, room):
        self.clock, self.room = clock, room
        self.requests, self.running, self.resumed, self.cached, self.drafts = {}, [], set(), {}, {}

    def schedule(self):
        self.clock.now += 10
        left, counts, new, old, positions, resumed = 8, {}, [], [], [], set()
        for request in list(self.requests.values()):
            if request not in self.running and len(self.running) < self.room:
                self.running.append(request)
            pending = request.num_tokens - request.num_computed
            if request not in self.running or not left or pending <= 0:
                continue
            if request.is_new:
                request.num_computed = self.cached.get(request.request_id, 0)
                pending = request.num_tokens - request.num_computed
                new.append(Of(req_id=request.request_id, num_computed_tokens=request.num_computed))
                request.is_new = False
            else:
                old.append(request.request_id)
                positions.append(request.num_computed)
                if request.request_id in self.resumed:
                    resumed.add(request.request_id)
            counts[request.request_id] = min(left, pending)
            left -= counts[request.request_id]
        self.resumed -= resumed
        for request_id, count in counts.items():
            self.requests[request_id].num_computed += count
        cached = Of(req_ids=old, num_computed_tokens=positions, resumed_req_ids=resumed)
        return Of(scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=counts,
                  total_num_scheduled_tokens=sum(counts.values()), scheduled_spec_decode_tokens=self.drafts)

    def preempt(self, request_id):
        self.requests[request_id].num_computed = 0
        self.resumed.add(request_id)

    def update_from_output(self, scheduler_output, model_output):
        self.clock.now += 5
        outputs = []
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None or request.num_computed < request.num_tokens:
                continue
            request.answer += 1
            reason = Finish.LENGTH if request.answer == request.most else None
            outputs.append(Of(request_id=request_id, new_token_ids=[7], finish_reason=reason))
            if reason and not request.resumable:
                self.free(request)
        return {0: Of(outputs=outputs)}

    def finish_requests(self, request_ids, finished_status):
        for request_id in request_ids:
            if request_id in self.requests:
                self.free(self.requests[request_id])

    def free(self, request):
        request.has_finished = True
        del self.requests[request.request_id]
        if request in self.running:
            self.running.remove(request)


class Executor:
    """Computes 100 for each token, at once or when its result is fetched, and samples for 50."""

    def __init__(self, clock, is_async):
        self.clock, self.is_async = clock, is_async

    def execute_model(self, scheduler_output, non_block=False):
        if self.is_async:
            self.ran = scheduler_output.total_num_scheduled_tokens * 100
            self.computed = concurrent.futures.Future()
            return self.computed
        self.clock.now += scheduler_output.total_num_scheduled_tokens * 100
        return None

    def sample_tokens(self, grammar_output, non_block=False):
        if self.is_async:
            future = concurrent.futures.Future()
            future.takes = self.ran + 50
            return future
        self.clock.now += 50
        return "sampled"


class EngineCore:
    def __init__(self, clock, room=4, is_async=False):
        self.vllm_config = Of(parallel_config=Of(pipeline_parallel_size=1), model_config=Of(model="/models/tiny"))
        self.scheduler, self.model_executor = Scheduler(clock, room), Executor(clock, is_async)
        self.clock, self.queue = clock, []

    def preprocess_add_request(self, request):
        return request, 0

    def add_request(self, request, request_wave=0):
        self.scheduler.requests[request.request_id] = request

    def step(self):
        output = self.scheduler.schedule()
        self.model_executor.execute_model(output, non_block=True)
        result = self.model_executor.sample_tokens(None)
        # Requests that are aborted meanwhile.
        self.clock.now += 1
        return self.scheduler.update_from_output(output, result)

    def step_with_queue(self):
        output = self.scheduler.schedule()
        if output.total_num_scheduled_tokens:
            self.model_executor.execute_model(output, non_block=True)
            self.queue.append((output, self.model_executor.sample_tokens(None, non_block=True)))
            if len(self.queue) < 2:
                return
        output, future = self.queue.pop(0)
        self.clock.now += future.takes
        future.set_result("sampled")
        self.clock.now += 1
        self.scheduler.update_from_output(output, future)


class OutputProcessor:
    def add_request(self, request, prompt, parent_req=None):
        return None

    def process_outputs(self, engine_core_outputs):
        return Of(reqs_to_abort=[of.request_id for of in engine_core_outputs if of.is_stopped])


class FastAPI:
    def __init__(self, then):
        self.then = then

    async def __call__(self, scope, receive, send):
        self.then()


MODULES = {
    "vllm.v1.engine.core": {"EngineCore": EngineCore},
    "vllm.v1.engine.output_processor": {"OutputProcessor": OutputProcessor},
    "fastapi.applications": {"FastAPI": FastAPI},
}


class WithAnEngineOfOurOwn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "run.json"
        self.clock = Clock()
        # Each test has classes of its own, since hooks stay.
        for name, held in MODULES.items():
            module = types.ModuleType(name)
            module.__dict__.update({of: type(of, (cls,), {**cls.__dict__}) for of, cls in held.items()})
            self.enter(mock.patch.dict(sys.modules, {name: module}))
        self.enter(mock.patch.dict(os.environ, {plugin.OUT: str(self.file)}))
        os.environ.pop(plugin.FOLDER, None)
        os.environ.pop(plugin.FOLDER_OF, None)
        self.enter(mock.patch.multiple(
            plugin, clock=self.clock, _is_off=False, _cores=weakref.WeakSet(), _notes=None, _owned=None, _held={}))
        self.enter(mock.patch.object(plugin.atexit, "register"))
        self.enter(mock.patch.object(plugin.signal, "signal"))
        self.said = io.StringIO()
        self.enter(contextlib.redirect_stderr(self.said))

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def engine(self, **how):
        plugin.register()
        return sys.modules["vllm.v1.engine.core"].EngineCore(self.clock, **how)

    def ask(self, engine, request_id, prompt, most, external=None):
        request = Request(request_id, prompt, most)
        if external:
            request.external_req_id = external
        engine.preprocess_add_request(request)
        self.clock.now += 3
        engine.add_request(request)
        return request

    def run_of(self):
        plugin._finish_once()
        run = json.loads(self.file.read_text())
        self.assertEqual([of.name for of in self.folder.iterdir() if of.name.startswith(".")], [])
        for one in run["requests"]:
            times = [one["arrived_ns"], one.get("admitted_ns"), *one.get("tokens_ns", []), one.get("ended_ns")]
            times = [at for at in times if at is not None]
            self.assertEqual(times, sorted(times))
        sums = {}
        for part in run["parts"]:
            sums[part["pass"]] = sums.get(part["pass"], 0) + part["tokens"]
        self.assertEqual(sums, {of["serial"]: of["tokens"] for of in run["passes"]})
        return run

    def parts(self, run, request):
        return [(of["kind"], of["tokens"], of["position"], of.get("cached", 0))
                for of in run["parts"] if of["request"] == request]

    def test_a_step_is_a_pass_with_its_parts(self):
        engine = self.engine()
        self.ask(engine, "a", 11, 3)
        engine.step()
        self.ask(engine, "b-12345678", 4, 2, "b")
        for _ in range(3):
            engine.step()
        run = self.run_of()
        own = [("prompt", 8, 0, 0), ("prompt", 3, 8, 0), ("decode", 1, 11, 0), ("decode", 1, 12, 0)]
        self.assertEqual(self.parts(run, 0), own)
        self.assertEqual(self.parts(run, 1), [("prompt", 4, 0, 0), ("decode", 1, 4, 0)])
        a, b = run["requests"]
        self.assertEqual((a["id"], b["id"], a["ending"], b["ending"]), ("a", "b", "length", "length"))
        # Scheduled in 10, then 8 tokens and sampling, and what comes after is in no pass.
        self.assertEqual((a["arrived_ns"], a["received_ns"], a["admitted_ns"]), (0, 0, 13))
        first = run["passes"][0]
        self.assertEqual((first["start_ns"], first["wall_ns"], first["phase"]), (13, 850, "prefill"))
        # The second step has the rest, and so a token: one reading after the result was taken in.
        second = run["passes"][1]
        self.assertEqual(second["start_ns"], 13 + 850 + 1 + 5 + 3 + 10)
        self.assertEqual(a["tokens_ns"][0], second["start_ns"] + second["wall_ns"] + 1 + 5)
        self.assertEqual(a["tokens_ns"][-1], a["ended_ns"])
        self.assertEqual([of["phase"] for of in run["passes"]], ["prefill", "prefill", "decode", "decode"])
        outside = {row["name"]: (row["count"], row["total_ns"]) for row in run["totals"] if row["phase"] is None}
        self.assertEqual(outside, {"Scheduling": (4, 40), "Taking in the result": (4, 20)})
        self.assertEqual((run["run"]["prompt_tokens"], run["run"]["generated_tokens"]), (15, 5))
        self.assertEqual(run["model"]["name"], "tiny")

    def test_what_is_handed_over_early_begins_with_the_result_before_it(self):
        engine = self.engine(is_async=True)
        self.ask(engine, "a", 8, 2)
        self.ask(engine, "b", 8, 2)
        for _ in range(4):
            engine.step_with_queue()
        run = self.run_of()
        first, second = run["passes"][:2]
        self.assertEqual(first["start_ns"] + first["wall_ns"], second["start_ns"])
        # The first result is taken in and the third step scheduled meanwhile.
        self.assertEqual(second["wall_ns"], 1 + 5 + 10 + 8 * 100 + 50)
        spans = sorted((of["start_ns"], of["start_ns"] + of["wall_ns"]) for of in run["passes"])
        self.assertTrue(all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:])))
        self.assertIn("handed over before", run["imported"]["doubts"][0])

    def test_a_device_with_stages_has_passes_that_overlap(self):
        engine = self.engine(is_async=True)
        engine.vllm_config.parallel_config.pipeline_parallel_size = 2
        self.ask(engine, "a", 8, 2)
        self.ask(engine, "b", 8, 2)
        for _ in range(4):
            engine.step_with_queue()
        run = self.run_of()
        self.assertLess(run["passes"][1]["start_ns"], run["passes"][0]["start_ns"] + run["passes"][0]["wall_ns"])
        self.assertEqual(run["imported"]["doubts"], [])

    def test_what_was_in_the_prefix_cache_is_said_with_the_first_pass(self):
        engine = self.engine()
        engine.scheduler.cached["a"] = 16
        self.ask(engine, "a", 21, 2)
        engine.step()
        engine.step()
        self.assertEqual(self.parts(self.run_of(), 0), [("prompt", 5, 16, 16), ("decode", 1, 21, 0)])

    def test_one_that_was_preempted_computes_its_answer_again_as_a_prompt(self):
        engine = self.engine()
        self.ask(engine, "a", 6, 4)
        engine.step()
        engine.step()
        engine.scheduler.preempt("a")
        engine.step()
        engine.step()
        run = self.run_of()
        own = [("prompt", 6, 0, 0), ("decode", 1, 6, 0), ("prompt", 8, 0, 0), ("decode", 1, 8, 0)]
        self.assertEqual(self.parts(run, 0), own)
        self.assertEqual(len(run["requests"][0]["tokens_ns"]), 4)

    def test_a_session_goes_on_after_a_turn(self):
        engine = self.engine()
        request = self.ask(engine, "a", 4, 1)
        request.resumable = True
        engine.step()
        # The token of the first turn is dropped, and the prompt grows.
        request.num_prompt_tokens, request.answer, request.resumable = 7, 0, False
        engine.add_request(request)
        engine.step()
        run = self.run_of()
        [one] = run["requests"]
        self.assertEqual(self.parts(run, 0), [("prompt", 4, 0, 0), ("prompt", 3, 4, 0)])
        self.assertEqual((len(one["tokens_ns"]), one["ending"]), (2, "length"))
        self.assertEqual(one["ended_ns"], one["tokens_ns"][1])

    def test_a_result_whose_callback_comes_late_is_there_when_it_is_taken_in(self):
        class Late(concurrent.futures.Future):
            def add_done_callback(self, then):
                pass

        engine = self.engine(is_async=True)
        self.ask(engine, "a", 4, 1)
        with mock.patch.object(concurrent.futures, "Future", Late):
            for _ in range(2):
                engine.step_with_queue()
        # Up to the first reading afterwards.
        self.assertEqual([of["wall_ns"] for of in self.run_of()["passes"]], [10 + 4 * 100 + 50 + 1])

    def test_a_result_of_computing_alone_is_not_the_end_of_a_pass(self):
        engine = self.engine(is_async=True)
        self.ask(engine, "a", 4, 1)
        engine.step_with_queue()
        self.clock.now += 20
        engine.model_executor.computed.set_result(None)
        with mock.patch.object(concurrent.futures.Future, "_invoke_callbacks"):
            engine.step_with_queue()
        self.assertEqual([of["wall_ns"] for of in self.run_of()["passes"]], [20 + 10 + 4 * 100 + 50 + 1])

    def test_who_waits_for_room_is_admitted_later(self):
        engine = self.engine(room=1)
        self.ask(engine, "a", 4, 2)
        self.ask(engine, "b", 4, 1)
        for _ in range(3):
            engine.step()
        a, b = self.run_of()["requests"]
        self.assertEqual(b["admitted_ns"], a["ended_ns"] + 10)

    def test_who_went_away_and_whose_text_stopped_it(self):
        engine = self.engine()
        front = sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()
        for name in "abc":
            self.ask(engine, name, 2, 9)
        engine.step()
        front.process_outputs([Of(request_id="b", is_stopped=True, finish_reason=None)])
        engine.scheduler.finish_requests(["a", "b", "unknown"], Status.FINISHED_ABORTED)
        ended = self.clock.now
        run = self.run_of()
        self.assertEqual([of.get("ending") for of in run["requests"]], ["cancelled", "stop", None])
        self.assertEqual(run["requests"][0]["ended_ns"], ended - 1_000_000)

    def test_a_request_arrives_where_its_http_does(self):
        engine = self.engine()
        front = sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()

        def answer():
            self.clock.now += 100
            front.add_request(Of(request_id="a-1", external_req_id="a"), "text")
            front.process_outputs([Of(request_id="a-1", is_stopped=False, finish_reason=Finish.LENGTH)])
            # One more, for which the same HTTP request had to wait.
            front.add_request(Of(request_id="b-1", external_req_id="b"), "text")

        asyncio.run(sys.modules["fastapi.applications"].FastAPI(answer)({"type": "http"}, None, None))
        self.clock.now += 50
        self.ask(engine, "a-1", 2, 1)
        self.ask(engine, "b-1", 2, 1)
        engine.step()
        run = self.run_of()
        self.assertEqual([(of["id"], of["arrived_ns"]) for of in run["requests"]], [("a", 0), ("b", 100)])
        self.assertEqual(run["requests"][0]["received_ns"], 100 + 50)
        self.assertEqual(run["requests"][0]["admitted_ns"], 100 + 50 + 3 + 3 + 10)

    def test_a_name_that_comes_again_is_another_request(self):
        engine = self.engine()
        front = sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()
        # The engine core never had it.
        front.add_request(Of(request_id="a", external_req_id="refused"), "text")
        self.clock.now += 500
        for nth in range(2):
            front.add_request(Of(request_id="a", external_req_id="question-%d" % nth), "text")
            self.clock.now += 100
            self.ask(engine, "a", 2, 9)
            engine.step()
            if nth == 0:
                front.process_outputs([Of(request_id="a", is_stopped=True, finish_reason=None)])
            engine.scheduler.finish_requests(["a"], Status.FINISHED_ABORTED)
            self.clock.now += 1000
        # One that came after both.
        front.add_request(Of(request_id="a", external_req_id="question-2"), "text")
        requests = self.run_of()["requests"]
        self.assertEqual([of["id"] for of in requests], ["question-0", "question-1"])
        self.assertEqual([of["received_ns"] - of["arrived_ns"] for of in requests], [100, 100])
        self.assertEqual([of["ending"] for of in requests], ["stop", "cancelled"])

    def test_one_that_nobody_is_seen_to_ask_takes_no_arrival_of_its_name(self):
        engine = self.engine()
        front = sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()
        front.add_request(Of(request_id="a", external_req_id="question"), "text")
        for _ in range(2):
            self.clock.now += 100
            self.ask(engine, "a", 2, 1)
            engine.step()
        run = self.run_of()
        self.assertEqual([of["id"] for of in run["requests"]], ["question", "a"])
        self.assertTrue(any("when 1 requests arrived" in of["reason"] for of in run["imported"]["lacks"]))

    def test_several_answers_to_one_question_have_names_of_their_own(self):
        engine = self.engine()
        self.ask(engine, "0_a", 2, 1, "a")
        self.ask(engine, "1_a", 2, 1, "a")
        engine.step()
        self.assertEqual([of["id"] for of in self.run_of()["requests"]], ["0_a", "1_a"])

    def test_a_hook_that_fails_turns_all_off_and_the_engine_goes_on(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 3)
        engine.step()
        self.enter(mock.patch.object(plugin, "_Step", side_effect=ValueError("broken")))
        for _ in range(2):
            engine.step()
        self.assertEqual(engine.scheduler.requests, {})
        self.assertEqual(self.said.getvalue().count("isn't recorded any further"), 1)
        run = self.run_of()
        self.assertEqual((len(run["passes"]), len(run["requests"][0]["tokens_ns"])), (1, 1))
        self.assertNotIn("ended_ns", run["requests"][0])
        self.assertTrue(any("a hook failed, in schedule" in of["reason"] for of in run["imported"]["lacks"]))

    def test_positions_of_drafts_under_async_scheduling_are_doubted(self):
        for is_async in False, True:
            engine = self.engine()
            engine.vllm_config.scheduler_config = Of(async_scheduling=is_async)
            engine.scheduler.drafts = {"a": [-1]}
            self.ask(engine, "a", 2, 2)
            engine.step()
            engine.step()
            doubts = self.run_of()["imported"]["doubts"]
            self.assertEqual([of.startswith("speculative decoding") for of in doubts], [True] * is_async)

    def test_an_error_of_the_engine_is_its_own(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 3)
        engine.step()
        del engine.model_executor.clock
        with self.assertRaises(AttributeError):
            engine.step()
        self.assertNotIn("recorded", self.said.getvalue())
        self.assertEqual(len(self.run_of()["passes"]), 1)

    def test_what_has_no_room_is_counted(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 9)
        with mock.patch.object(plugin, "MOST_PASSES", 2):
            for _ in range(5):
                engine.step()
            self.ask(engine, "b", 2, 9)
        run = self.run_of()
        self.assertEqual((len(run["passes"]), len(run["requests"])), (2, 1))
        self.assertEqual(len(run["imported"]["left_out"]), 1)

    def test_a_line_that_was_cut_off_ends_the_file(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 9)
        engine.step()
        folder = pathlib.Path(os.environ[plugin.FOLDER])
        log = next(folder.glob("core-*"))
        log.write_text(log.read_text() + '["pass",[1')
        # As of a process that was killed: its folder is left.
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(plugin.main([str(folder), str(self.folder / "other.json")]), 0)
            self.assertEqual(plugin.main([]), 2)
        other = json.loads((self.folder / "other.json").read_text())
        self.assertEqual((len(other["passes"]), len(other["clock"]["anchors"])), (1, 1))
        self.run_of()

    def test_a_run_made_elsewhere_has_the_servers_command_and_no_anchor(self):
        with mock.patch.object(sys, "argv", ["vllm", "serve", "--api-key", "secret"]):
            engine = self.engine()
            self.ask(engine, "a", 2, 9)
        for boot in "elsewhere", None:
            with mock.patch.object(plugin, "_boot", return_value=boot), contextlib.redirect_stdout(io.StringIO()):
                plugin.main([os.environ[plugin.FOLDER], str(self.folder / "other.json")])
            other = json.loads((self.folder / "other.json").read_text())
            self.assertEqual(other["clock"]["anchors"], [])
            self.assertEqual(other["run"]["command"], ["vllm", "serve", "--api-key", "***"])
        self.run_of()
        with mock.patch.object(plugin, "_boot", return_value=None):
            self.ask(self.engine(), "a", 2, 9)
            self.assertEqual(self.run_of()["clock"]["anchors"], [])

    def test_a_line_that_cannot_be_read_is_left_out_and_counted(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 2)
        self.ask(engine, "b", 2, 2)
        engine.step()
        log = next(pathlib.Path(os.environ[plugin.FOLDER]).glob("core-*"))
        broken = [line for line in log.read_text().splitlines() if line.startswith('["request",0')]
        self.assertEqual(len(broken), 1)
        log.write_text(log.read_text().replace(broken[0], broken[0][:9]))
        run = self.run_of()
        self.assertEqual([(of["id"], len(of["tokens_ns"])) for of in run["requests"]], [("b", 1)])
        self.assertEqual([of["request"] for of in run["parts"]], [plugin.NOBODY, 0])
        self.assertTrue(any("in 1 lines that can't be read" in of["reason"] for of in run["imported"]["lacks"]))

    def test_a_line_that_is_cut_short_turns_all_off(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 3)
        engine.step()
        write = os.write
        with mock.patch.object(os, "write", lambda file, text: write(file, text[:20])):
            engine.step()
        self.assertIn("in update_from_output: OSError", self.said.getvalue())
        self.assertEqual(len(self.run_of()["passes"]), 1)

    def test_what_follows_a_line_that_was_cut_short_is_read(self):
        self.engine()
        log, write = plugin._Log("core"), os.write
        with mock.patch.object(os, "write", lambda file, text: write(file, text[:3])):
            self.assertRaises(OSError, log.write, ["cut"])
        log.write(["whole"])
        lines = plugin._Lines(next(pathlib.Path(os.environ[plugin.FOLDER]).glob("core-*")))
        self.assertEqual([of[0] for of in lines], ["host", "whole"])
        self.assertEqual(lines.broken, 1)

    def test_an_engine_may_go_on_while_its_run_is_made(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 2)
        engine.step()

        class Table(plugin.recorder._Table):
            def add_pass(table, *given):
                # Between both times that the file is read.
                self.ask(engine, "b", 2, 2)
                engine.step()
                super().add_pass(*given)

        with mock.patch.object(plugin.recorder, "_Table", Table):
            run = self.run_of()
        self.assertNotIn("isn't written", self.said.getvalue())
        self.assertEqual((len(run["requests"]), len(run["passes"])), (1, 1))

    def test_times_of_another_host_are_not_taken(self):
        engine = self.engine()
        front = sys.modules["vllm.v1.engine.output_processor"].OutputProcessor()
        with mock.patch.object(plugin, "_boot", return_value="elsewhere"):
            front.add_request(Of(request_id="a"), "text")
        self.clock.now += 70
        self.ask(engine, "a", 2, 1)
        engine.step()
        run = self.run_of()
        self.assertEqual(run["requests"][0]["admitted_ns"], 13)
        self.assertTrue(any("when 1 requests arrived" in of["reason"] for of in run["imported"]["lacks"]))

    def test_each_engine_has_a_run(self):
        one, two = self.engine(), self.engine()
        for nth, engine in enumerate([one, two]):
            self.clock.now += 1
            self.ask(engine, "abc"[nth], 2, 1)
            engine.step()
        self.assertEqual(self.run_of()["requests"][0]["id"], "a")
        self.assertEqual(json.loads((self.folder / "run-2.json").read_text())["requests"][0]["id"], "b")

    def test_an_engine_that_nobody_has_any_more_is_freed(self):
        engine = self.engine()
        self.ask(engine, "a", 2, 2)
        engine.step()
        file, engine = engine.__dict__["_brickscope_core"].log.file, weakref.ref(engine)
        gc.collect()
        self.assertIsNone(engine())
        self.assertEqual(len(plugin._cores), 0)
        with self.assertRaises(OSError):
            os.fstat(file)
        self.assertEqual(len(self.run_of()["passes"]), 1)

    def test_without_the_variable_nothing_is_touched(self):
        del os.environ[plugin.OUT]
        self.engine()
        self.assertFalse(hasattr(sys.modules["vllm.v1.engine.core"].EngineCore.add_request, "_is_brickscopes"))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_modules_that_are_imported_later_get_hooks_then(self):
        (self.folder / "imported_later.py").write_text("class Class:\n    def call(self):\n        return 1\n")
        self.enter(mock.patch.object(sys, "path", [str(self.folder), *sys.path]))
        seen = []
        plugin._when_imported("imported_later", seen.append)
        self.addCleanup(sys.modules.pop, "imported_later", None)
        # Who only looks for it, imports nothing.
        self.assertIsNotNone(importlib.util.find_spec("imported_later"))
        module = importlib.import_module("imported_later")
        self.assertEqual(seen, [module])
        self.assertFalse(any(isinstance(of, plugin._Importing) for of in sys.meta_path))

    def later(self, finder):
        """Imports a module for which hooks wait, beside another finder that looks for it."""
        (self.folder / "imported_later.py").write_text("")
        self.enter(mock.patch.object(sys, "path", [str(self.folder), *sys.path]))
        self.enter(mock.patch.object(sys, "meta_path", [finder, *sys.meta_path]))
        self.addCleanup(sys.modules.pop, "imported_later", None)
        seen = []
        plugin._when_imported("imported_later", seen.append)
        importlib.import_module("imported_later")
        return seen

    def test_a_finder_that_asks_all_the_others_is_no_trouble(self):
        class Finder:
            is_on = False

            def find_spec(self, name, path, target=None):
                if self.is_on:
                    return None
                self.is_on = True
                spec = importlib.util.find_spec(name)
                self.is_on = False
                return spec

        self.assertEqual(len(self.later(Finder())), 1)
        self.assertEqual(self.said.getvalue(), "")

    def test_a_finder_that_fails_is_said_and_the_import_goes_on(self):
        class Finder:
            def find_spec(self, name, path, target=None):
                if name == "imported_later" and not plugin._is_off:
                    raise ValueError("broken")

        self.assertEqual(self.later(Finder()), [])
        self.assertIn("in import of imported_later: ValueError: broken", self.said.getvalue())

    def test_a_program_that_is_to_write_elsewhere_has_a_folder_of_its_own(self):
        self.engine()
        folder, owned = os.environ[plugin.FOLDER], plugin._owned
        # One that is started by it, to write the same run, and another one.
        plugin._owned = None
        plugin.register()
        self.assertEqual((os.environ[plugin.FOLDER], plugin._owned), (folder, None))
        os.environ[plugin.OUT] = str(self.folder / "other.json")
        plugin.register()
        self.assertNotEqual(os.environ[plugin.FOLDER], folder)
        self.assertEqual(plugin._owned[2], str(self.folder / "other.json"))
        for plugin._owned in plugin._owned, owned:
            plugin._finish_once()

    def test_a_version_without_what_is_hooked_is_said(self):
        engine = self.engine()
        engine.scheduler = Of(requests={})
        self.ask(engine, "a", 2, 1)
        self.assertIn("in preprocess_add_request: AttributeError", self.said.getvalue())
        self.assertEqual(list(engine.scheduler.requests), ["a"])

    def test_a_folder_that_cannot_be_made_is_said_and_that_is_all(self):
        os.environ[plugin.OUT] = str(self.file / "run.json")
        self.file.write_text("")
        engine = self.engine()
        self.ask(engine, "a", 2, 1)
        engine.step()
        self.assertIn("isn't recorded any further, in register", self.said.getvalue())


@unittest.skipIf(vllm is None, "vLLM isn't installed")
class WithVllm(unittest.TestCase):
    def test_what_is_hooked_is_there(self):
        from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.engine import EngineCoreOutput, FinishReason
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.engine.output_processor import OutputProcessor, OutputProcessorOutput
        from vllm.v1.executor import Executor
        from vllm.v1.request import Request as Real
        from vllm.v1.request import RequestStatus

        for cls, names in [
            (EngineCore, ["preprocess_add_request", "add_request"]),
            (Scheduler, ["schedule", "update_from_output", "finish_requests"]),
            (Executor, ["execute_model"]),
            (OutputProcessor, ["add_request", "process_outputs"]),
            (Real, ["num_tokens", "is_finished"]),
        ]:
            for name in names:
                self.assertTrue(hasattr(cls, name), (cls, name))
        fields = SchedulerOutput.__dataclass_fields__
        names = ["scheduled_new_reqs", "scheduled_cached_reqs", "num_scheduled_tokens", "total_num_scheduled_tokens"]
        for name in names:
            self.assertIn(name, fields)
        fields = CachedRequestData.__dataclass_fields__
        self.assertTrue({"req_ids", "num_computed_tokens"} <= set(fields))
        self.assertTrue({"resumed_req_ids", "resumed_from_preemption"} & set(fields))
        self.assertIn("reqs_to_abort", OutputProcessorOutput.__dataclass_fields__)
        self.assertTrue({"request_id", "new_token_ids", "finish_reason"} <= set(EngineCoreOutput.__struct_fields__))
        self.assertTrue({of.name for of in FinishReason} <= set(plugin.ENDINGS))
        finished = {of.name for of in RequestStatus if RequestStatus.is_finished(of)}
        self.assertEqual(finished - set(plugin.ENDINGS), set())


if __name__ == "__main__":
    unittest.main()
