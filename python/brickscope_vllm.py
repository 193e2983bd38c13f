"""Records what vLLM did for each request as a run that every `brickscope` command reads. vLLM loads it as a plugin.

    pip install brickscope/python                # a clone; into the environment of vLLM
    BRICKSCOPE_OUT=run.json vllm serve MODEL
    brickscope requests run.json

Each step of an engine core (V1) that computes tokens is a pass, with its parts: for which requests it was, how many
tokens of each, from where on, and how many were found in the prefix cache. Of each request: when it arrived, was
admitted, got each of its tokens and ended, and how.

Times are readings of CLOCK_MONOTONIC, which the processes of a host share. A pass lasts from the call that hands it to
the executor until its result, with sampling, is there: it has the model's work, and what the executor takes to send
and to fetch. Scheduling and taking in the result are spans of their own, outside of passes; with async scheduling,
inside the next one: a step is handed over while the one before it runs. It begins with the result of that one then,
since a device does one after the other; only with pipeline parallelism do passes overlap.

vLLM kills its engine core right after it asked it to end, so nothing can be left for its end: each process appends what
it sees to a file of its own, in a hidden folder beside the run, and the process that started them makes the run of
these when it ends. If that was killed, too, `python -m brickscope_vllm FOLDER run.json` makes it.

Without BRICKSCOPE_OUT nothing is touched. With it, no answer changes: a hook that fails says so once on stderr, and
turns all of them off. The file needs nothing but Python 3.9, its standard library and the package `brickscope` beside it.
"""

import array
import atexit
import contextvars
import functools
import glob
import importlib.abc
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import weakref

from brickscope import recorder

__all__ = ["finish", "register"]

OUT = "BRICKSCOPE_OUT"
# The folder of the files of all processes; set by the one that was there first.
FOLDER = "BRICKSCOPE_VLLM_FOLDER"
# What `OUT` was then: a program that was started with another one is no part of the run.
FOLDER_OF = "BRICKSCOPE_VLLM_OUT"

# The most that is recorded of an engine core. What comes later is counted, and nothing else: a request whose passes are
# missing would seem to wait for nothing. Nothing of it is in memory before the run is made; that takes some 400 MB and
# ten seconds then, of files of some 30 MB.
MOST_PASSES = 1 << 17
MOST_PARTS = 1 << 20
MOST_REQUESTS = 1 << 16
# Stands for a request that isn't known.
NOBODY = 0xFFFFFFFF
PROMPT, DECODE = 0, 1
KINDS = ("prompt", "decode")

# What vLLM calls the ways to end; `IGNORED` is a prompt that is too long.
ENDINGS = {
    "STOP": "stop", "REPETITION": "stop", "LENGTH": "length", "ABORT": "cancelled", "ERROR": "error",
    "FINISHED_STOPPED": "stop", "FINISHED_REPETITION": "stop", "FINISHED_LENGTH_CAPPED": "length",
    "FINISHED_IGNORED": "length", "FINISHED_ABORTED": "cancelled", "FINISHED_ERROR": "error",
}

clock = time.monotonic_ns


# Hooks.

_is_off = False
_lock = threading.Lock()
# Of `_fail` alone: vLLM leaves it to gc to free an engine and its device's memory, so nothing here may hold one.
_cores, _notes, _owned = weakref.WeakSet(), None, None
# When the HTTP request came that is being answered: a list, so that it can be taken away for all that know it.
_came = contextvars.ContextVar("brickscope_came", default=None)


def _fail(where, error):
    global _is_off
    if not _is_off:
        _is_off = True
        try:
            told = "%s: %s" % (type(error).__name__, error)
            print("brickscope: vLLM isn't recorded any further, in %s: %s" % (where, told), file=sys.stderr, flush=True)
            for core in list(_cores):
                core.log.write(["off", where, told])
        except Exception:
            pass


def _hook(owner, name, before=None, after=None):
    """Calls `before` with the arguments of a method, and `after` with what that returned and the method's result.

    An error of the method is the caller's, and an error of theirs is nobody's.
    """
    original = getattr(owner, name)
    if getattr(original, "_is_brickscopes", False):
        return

    @functools.wraps(original)
    def hooked(*args, **kwargs):
        held = None
        if before is not None and not _is_off:
            try:
                held = before(*args, **kwargs)
            except Exception as error:
                _fail(name, error)
        result = original(*args, **kwargs)
        if after is not None and not _is_off:
            try:
                after(held, result)
            except Exception as error:
                _fail(name, error)
        return result

    hooked._is_brickscopes = True
    setattr(owner, name, hooked)


def register():
    """Called by vLLM in each of its processes."""
    if not os.environ.get(OUT):
        return
    try:
        _install()
    except Exception as error:
        _fail("register", error)


def _install():
    global _owned
    folder = os.environ.get(FOLDER)
    if not folder or os.environ.get(FOLDER_OF) != os.environ[OUT] or not os.path.isdir(folder):
        file = recorder._file_of(os.environ[OUT])
        os.makedirs(os.path.dirname(file), exist_ok=True)
        folder = tempfile.mkdtemp(prefix=".", suffix=".vllm", dir=os.path.dirname(file))
        os.environ.update({FOLDER: folder, FOLDER_OF: os.environ[OUT]})
        _owned = (os.getpid(), folder, file)
        atexit.register(_finish_once)
        # Its default ends a process at once.
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)
    # Workers and others that load plugins never import some of these, and shouldn't have to.
    _when_imported("vllm.v1.engine.core", _of_core)
    _when_imported("vllm.v1.engine.output_processor", _of_frontend)
    _when_imported("fastapi.applications", _of_http)


def _on_sigterm(number, _):
    _finish_once()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _finish_once():
    global _owned
    if _owned is None or _owned[0] != os.getpid():
        return
    (_, folder, file), _owned = _owned, None
    os.environ.pop(FOLDER, None)
    os.environ.pop(FOLDER_OF, None)
    try:
        for written, requests, passes in finish(folder, file):
            print("brickscope: wrote %s: requests %d, passes %d" % (written, requests, passes), file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    except Exception as error:
        told = "%s: %s" % (type(error).__name__, error)
        print("brickscope: vLLM's run isn't written, its parts are in %s: %s" % (folder, told), file=sys.stderr)


class _Importing(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been imported."""

    def __init__(self, name, then):
        self.name, self.then = name, then
        # Those that it asks may ask all, and so it again.
        self.asking = threading.local()

    def find_spec(self, name, path, target=None):
        if name != self.name or getattr(self.asking, "is_on", False):
            return None
        self.asking.is_on = True
        try:
            return self.found(name, path, target)
        except Exception as error:
            _fail("import of " + name, error)
            return None
        finally:
            self.asking.is_on = False

    def found(self, name, path, target):
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                break
        else:
            return None
        if hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                # Here and not before: others look for a module and don't import it.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _safely(self.then, module)

            spec.loader.exec_module = exec_module
        return spec


def _when_imported(name, then):
    if name in sys.modules:
        _safely(then, sys.modules[name])
    else:
        sys.meta_path.insert(0, _Importing(name, then))


def _safely(then, module):
    try:
        then(module)
    except Exception as error:
        _fail(module.__name__, error)


def _of_core(module):
    cls = module.EngineCore

    def got(self, request, *_, **__):
        _core_of(self).got(request.request_id, getattr(request, "external_req_id", None), clock())

    def add(self, request, *_, **__):
        _core_of(self).add(request, clock())

    # The first is called when the process got the request, by a thread of its own; the second between two steps.
    if hasattr(cls, "preprocess_add_request"):
        _hook(cls, "preprocess_add_request", got)
    _hook(cls, "add_request", add)


def _of_frontend(module):
    _hook(module.OutputProcessor, "add_request", _asked)
    _hook(module.OutputProcessor, "process_outputs", _outputs_of, _stopped)


def _of_http(module):
    original = module.FastAPI.__call__
    if getattr(original, "_is_brickscopes", False):
        return

    @functools.wraps(original)
    async def called(self, scope, receive, send):
        if scope.get("type") == "http":
            _came.set([clock()])
        await original(self, scope, receive, send)

    called._is_brickscopes = True
    module.FastAPI.__call__ = called


_text = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class _Log:
    """A file of one process, to which each line is appended at once: nothing is lost if the process is killed."""

    def __init__(self, kind):
        name = "%s-%d-%d.jsonl" % (kind, os.getpid(), clock())
        self.file = os.open(os.path.join(os.environ[FOLDER], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.process, self.lines, self.is_cut = os.getpid(), 0, False
        # Not at the end of the process, where lines may still come.
        weakref.finalize(self, os.close, self.file).atexit = False
        # Readings of a monotonic clock mean nothing on another host, nor after a reboot.
        self.write(["host", _boot()])

    def write(self, line):
        self.lines += 1
        # After a line that was cut, which then is one by itself.
        written = (("\n" if self.is_cut else "") + _text(line) + "\n").encode()
        count = os.write(self.file, written)
        if count != len(written):
            self.is_cut = True
            raise OSError("of a line of %d bytes, %d were written" % (len(written), count))
        self.is_cut = False


def _boot():
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


# The process in which requests arrive.

_held = {}


def _note(line):
    global _notes
    if _notes is None or _notes.process != os.getpid():
        _notes = _Log("front")
    if _notes.lines < 4 * MOST_REQUESTS:
        _notes.write(line)


def _asked(_, request, *__, **___):
    held = _came.get()
    arrived = held[0] if held else None
    if held:
        if len(_held) >= MOST_REQUESTS:
            # Those that were aborted are never taken out.
            _held.clear()
        _held[request.request_id] = held
    _note(["asked", request.request_id, arrived or clock(), getattr(request, "external_req_id", None)])


def _outputs_of(_, engine_core_outputs, *__, **___):
    for output in engine_core_outputs:
        if output.finish_reason is not None:
            held = _held.pop(output.request_id, None)
            if held:
                # What is asked of the engine from here on for the same HTTP request, as a search does, came by itself.
                held[0] = None


def _stopped(_, result):
    # The engine core knows no text: one at which to stop is found here, and there the request is aborted.
    if result.reqs_to_abort:
        _note(["stopped", clock(), list(result.reqs_to_abort)])


# The process of the engine core.

class _Known:
    __slots__ = ("number", "is_admitted", "prompt_end", "decodes_from")

    def __init__(self, number):
        self.number, self.is_admitted, self.prompt_end = number, False, 0
        # From this position on it decodes, and nothing needs to be looked up. None: of a session, the prompt grows.
        self.decodes_from = NOBODY


class _Step:
    __slots__ = ("output", "scheduled", "parts", "decode", "admitted", "begin", "returned", "done", "handed",
                 "is_later")

    def __init__(self, output, scheduled):
        # The output is kept, so that no other one has its address.
        self.output, self.scheduled = output, scheduled
        # Parts, and those that decode one token, of which there are most: the request and its position.
        self.parts, self.decode, self.admitted = [], [], []
        self.begin, self.returned, self.done, self.handed, self.is_later = None, 0, 0, 0, False


def _core_of(engine):
    with _lock:
        core = engine.__dict__.get("_brickscope_core")
        if core is None or core.process != os.getpid():
            core = engine.__dict__["_brickscope_core"] = _Core(engine)
            _cores.add(core)
            core.attach(engine)
        return core


class _Core:
    def __init__(self, engine):
        self.process = os.getpid()
        self.known, self.came, self.steps, self.last = {}, {}, {}, None
        self.previous_end = 0
        self.passes = self.parts = self.requests = self.missed = 0
        self.is_full = False
        config = engine.vllm_config
        parallel = config.parallel_config
        self.is_in_order = getattr(parallel, "pipeline_parallel_size", 1) == 1
        # Whether tokens are drafted is seen later, once.
        self.is_async = bool(getattr(getattr(config, "scheduler_config", None), "async_scheduling", False))
        self.has_drafts = False
        # Then the work is done when the call returns, whenever its result is fetched.
        device = getattr(getattr(config, "device_config", None), "device_type", None)
        self.is_inline = device == "cpu" and hasattr(engine.model_executor, "driver_worker")
        self.log = _Log("core")
        self.log.write(["engine", _about(engine)])

    def attach(self, engine):
        scheduler, executor = engine.scheduler, engine.model_executor
        self.requests_of = scheduler.requests
        _hook(scheduler, "schedule", lambda *_, **__: clock(), self.scheduled)
        _hook(scheduler, "update_from_output", self.has_result, self.taken_in)
        _hook(scheduler, "finish_requests", self.is_ending, self.ended)
        _hook(executor, "execute_model", self.begins, self.handed_over)
        if hasattr(executor, "sample_tokens"):
            # Older ones sample where they execute.
            _hook(executor, "sample_tokens", lambda *_, **__: self.last, self.handed_over)

    def got(self, request_id, external, now):
        if len(self.came) > MOST_REQUESTS:
            # Those that were refused.
            self.came.clear()
        self.came[request_id] = (now, external)

    def add(self, request, now):
        came, external = self.came.pop(request.request_id, (now, None))
        session = self.known.get(request.request_id)
        if session is not None:
            session.decodes_from = None
            return
        if self.is_full or self.requests >= MOST_REQUESTS:
            self.miss()
            return
        self.known[request.request_id] = _Known(self.requests)
        self.log.write(["request", self.requests, request.request_id, external, came])
        self.requests += 1

    def miss(self):
        self.is_full = True
        self.missed += 1
        if self.missed & 0xFF == 1:
            self.log.write(["full", self.missed])

    def scheduled(self, begin, output):
        end = clock()
        if begin is None or not output.total_num_scheduled_tokens:
            return
        counts, step = output.num_scheduled_tokens, _Step(output, (begin, end))
        if self.is_full or self.passes >= MOST_PASSES or self.parts + len(counts) > MOST_PARTS:
            self.miss()
            return
        if self.is_async and not self.has_drafts and getattr(output, "scheduled_spec_decode_tokens", None):
            self.has_drafts = True
            self.log.write(["drafts"])
        for new in output.scheduled_new_reqs:
            # Some runners get requests that were preempted as new ones.
            known = self.known.get(new.req_id)
            self.part(step, known, new.req_id, counts, new.num_computed_tokens, known is not None and known.is_admitted)
        cached = output.scheduled_cached_reqs
        resumed = getattr(cached, "resumed_req_ids", None)
        if resumed is None:
            resumed = {of for of, is_resumed in zip(cached.req_ids, cached.resumed_from_preemption) if is_resumed}
        known_of, decode = self.known.get, step.decode
        for request_id, position in zip(cached.req_ids, cached.num_computed_tokens):
            known = known_of(request_id)
            if (known is not None and known.decodes_from is not None and position >= known.decodes_from
                    and request_id not in resumed and counts.get(request_id) == 1):
                decode.append(known.number)
                decode.append(position)
            else:
                self.part(step, known, request_id, counts, position, request_id in resumed)
        self.steps[id(output)] = step

    def part(self, step, known, request_id, counts, position, is_resumed):
        tokens = counts.get(request_id, 0)
        if not tokens:
            return
        # Of a session, its prompt grows.
        live, found = self.requests_of.get(request_id), 0
        if known is None:
            kind = PROMPT if live is not None and position < live.num_prompt_tokens else DECODE
            step.parts += [NOBODY, kind, tokens, position, 0]
            return
        if live is not None:
            known.prompt_end = max(known.prompt_end, live.num_prompt_tokens)
            if is_resumed:
                # All that it had is computed again, its answer up to here, too.
                known.prompt_end = live.num_tokens
            if known.decodes_from is not None:
                known.decodes_from = known.prompt_end
        if not known.is_admitted:
            known.is_admitted = True
            step.admitted.append(known.number)
            found = position
        step.parts += [known.number, PROMPT if position < known.prompt_end else DECODE, tokens, position, found]

    def begins(self, scheduler_output, *_, **__):
        step = self.last = self.steps.get(id(scheduler_output))
        if step is not None:
            step.begin = clock()
        return step

    def handed_over(self, step, result):
        if step is None:
            return
        step.returned = clock()
        step.done, step.handed = 0, step.handed + 1
        is_watched, nth = hasattr(result, "add_done_callback"), step.handed
        step.is_later = is_watched or (hasattr(result, "result") and not hasattr(result, "sampled_token_ids"))
        if is_watched:
            def done(_):
                # What computes has a result of its own, which may come after sampling was handed over.
                if step.handed == nth:
                    step.done = clock()
            result.add_done_callback(done)

    def has_result(self, scheduler_output, *_, **__):
        now = clock()
        step = self.steps.pop(id(scheduler_output), None)
        if step is None or step.begin is None:
            return None
        if self.is_inline:
            end = step.returned
        elif step.is_later and not step.done:
            # Nothing tells when it is done, or not yet: who waits is woken before the callbacks are called.
            end = now
        else:
            end = max(step.returned, step.done)
        begin, is_behind = step.begin, 0
        if self.is_in_order and begin < self.previous_end:
            begin, is_behind = self.previous_end, 1
        self.previous_end = max(self.previous_end, end)
        # Read again, so that all of this lies outside of what is timed.
        return step, begin, max(begin, end), is_behind, clock()

    def taken_in(self, held, outputs):
        now = clock()
        if held is None:
            return
        step, begin, end, is_behind, taken = held
        # A request is named once for each token.
        tokens, ends, known_of = [], [], self.known.get
        for of_client in outputs.values():
            for output in of_client.outputs:
                known = known_of(output.request_id)
                if known is None:
                    continue
                count = len(output.new_token_ids)
                if count == 1:
                    tokens.append(known.number)
                elif count:
                    tokens.extend([known.number] * count)
                if output.finish_reason is not None:
                    live = self.requests_of.get(output.request_id)
                    # Of a session, a turn may have ended alone: then it is there again, to go on.
                    if live is None or live.is_finished():
                        ends += [known.number, ENDINGS.get(output.finish_reason.name)]
                        del self.known[output.request_id]
        self.passes += 1
        self.parts += len(step.parts) // 5 + len(step.decode) // 2
        times = [*step.scheduled, begin, end, taken, now]
        self.log.write(["pass", times, is_behind, step.parts, step.decode, step.admitted, tokens, ends])

    def is_ending(self, request_ids, finished_status, *_, **__):
        if request_ids is None:
            found = list(self.known)
        elif isinstance(request_ids, str):
            found = [request_ids]
        elif isinstance(request_ids, (list, tuple, set, frozenset, dict)) or hasattr(request_ids, "__len__"):
            found = list(request_ids)
        else:
            # To look at it would use it up.
            return None
        found = [of for of in found if of in self.known]
        return found, finished_status

    def ended(self, held, _):
        now = clock()
        if not held or not held[0]:
            return
        found, status = held
        ended = []
        for request_id in found:
            live = self.requests_of.get(request_id)
            known = self.known.get(request_id)
            if known is not None and (live is None or live.is_finished()):
                ended.append(known.number)
                del self.known[request_id]
        if ended:
            self.log.write(["ended", now, ENDINGS.get(status.name), ended])


def _about(engine):
    """What is said of the engine, as far as this version has it."""
    config = engine.vllm_config

    def of(path):
        value = config
        for name in path.split("."):
            value = getattr(value, name, None)
        return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

    vllm = sys.modules.get("vllm")
    model = str(of("model_config.served_model_name") or of("model_config.model") or "")
    return {
        "version": str(getattr(vllm, "__version__", "")),
        "process": os.getpid(),
        "command": recorder._without_secrets(getattr(sys, "argv", [])),
        # Of a path, its last part.
        "model": os.path.basename(model.rstrip("/")),
        "architecture": str(of("model_config.hf_text_config.model_type") or ""),
        "layers": of("model_config.hf_text_config.num_hidden_layers") or 0,
        "embedding_length": of("model_config.hf_text_config.hidden_size") or 0,
        "quantization": str(of("model_config.quantization") or of("model_config.dtype") or "").replace("torch.", ""),
        "device": str(of("device_config.device_type") or "").upper(),
        "conditions": [[said, str(of(path))] for said, path in [
            ("most requests at once", "scheduler_config.max_num_seqs"),
            ("most tokens in a step", "scheduler_config.max_num_batched_tokens"),
            ("chunked prefill", "scheduler_config.enable_chunked_prefill"),
            ("async scheduling", "scheduler_config.async_scheduling"),
            ("prefix caching", "cache_config.enable_prefix_caching"),
            ("blocks of the KV cache", "cache_config.num_gpu_blocks"),
            ("tokens in a block", "cache_config.block_size"),
            ("tensor parallel", "parallel_config.tensor_parallel_size"),
            ("pipeline parallel", "parallel_config.pipeline_parallel_size"),
            ("data parallel", "parallel_config.data_parallel_size"),
        ] if of(path) is not None],
    }


# The run.

def finish(folder, file):
    """Makes runs of the files in a folder: one for each engine core. Returns the file, requests and passes of each."""
    # Of each name all, since names may come again.
    arrived, stopped, written, broken = {}, {}, [], 0
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "front-*.jsonl"))):
        boot, lines = None, _Lines(path)
        for line in lines:
            if line[0] == "host":
                boot = line[1]
            elif line[0] == "asked":
                arrived.setdefault((boot, line[1]), []).append((line[2], line[3]))
            elif line[0] == "stopped":
                for of in line[2]:
                    stopped.setdefault((boot, of), []).append(line[1])
        broken += lines.broken
    cores = glob.glob(os.path.join(glob.escape(folder), "core-*.jsonl"))
    # By when they began.
    for nth, path in enumerate(sorted(cores, key=lambda path: int(path.rsplit("-", 1)[1][:-6]))):
        made = file if nth == 0 else "%s-%d.json" % (file[:-5], nth + 1)
        run = _Run(path, arrived, stopped, broken)
        recorder._save(made, run.profile(made), run.rows())
        written.append((made, len(run.requests), run.passes))
    return written


class _Lines:
    """The lines that a file has now: its writer may go on, and who reads twice is to read the same."""

    def __init__(self, path):
        self.path, self.size, self.broken = path, os.stat(path).st_size, 0

    def __iter__(self):
        left, self.broken = self.size, 0
        with open(self.path, "rb") as file:
            for text in file:
                left -= len(text)
                if left < 0 or not text.endswith(b"\n"):
                    # The last one, if its process was killed meanwhile, or hasn't written all of it yet.
                    return
                try:
                    line = json.loads(text)
                except ValueError:
                    line = None
                if isinstance(line, list) and line:
                    yield line
                else:
                    self.broken += 1


class _Run:
    def __init__(self, path, arrived, stopped, broken):
        self.about, self.requests, self.missed, self.off, self.behind = {}, [], 0, None, 0
        self.parts = array.array("q")
        self.passes = 0
        self.without, self.has_drafts = 0, False
        self.table = recorder._Table(recorder._Names(), [])
        self.boot, origin, serial = None, None, 0
        # By the engine core's numbers: a line of one may be broken.
        self.index = {}
        ids, lines = {}, _Lines(path)
        # Twice, since times count from the first one, and a request may have come before the first line.
        for line in lines:
            if line[0] == "host":
                self.boot = line[1]
            elif line[0] == "request":
                _, number, request_id, external, came = line
                asked = arrived.get((self.boot, request_id), [])
                # The latest of its name, each for one request. It can't come after the engine core had it.
                nth = max((nth for nth, of in enumerate(asked) if of[0] <= came), default=None,
                          key=lambda nth: asked[nth][0])
                is_known = nth is not None
                at, outside = asked.pop(nth) if is_known else (None, None)
                self.without += not is_known
                external = external or outside or request_id
                ids[external] = ids.get(external, 0) + 1
                # `received_ns` is when the engine core had it: the queue before that is none for a place in the batch.
                one = {"id": external, "arrived_ns": at if is_known else came, "received_ns": came,
                       "tokens_ns": array.array("q"), "inner": request_id,
                       "stopped_ns": stopped.get((self.boot, request_id), [])}
                self.index[number] = len(self.requests)
                self.requests.append(one)
                origin = one["arrived_ns"] if origin is None else min(origin, one["arrived_ns"])
            elif line[0] == "pass":
                origin = line[1][0] if origin is None else min(origin, line[1][0])
        self.origin = origin or 0
        for one in self.requests:
            inner = one.pop("inner")
            if ids[one["id"]] > 1:
                # Several prompts or answers of one question.
                one["id"] = inner
            one["arrived_ns"] -= self.origin
            one["received_ns"] -= self.origin
        for line in lines:
            if line[0] == "engine":
                self.about = line[1]
            elif line[0] == "drafts":
                self.has_drafts = True
            elif line[0] == "full":
                self.missed = line[1]
            elif line[0] == "off":
                self.off = "%s: %s" % (line[1], line[2])
            elif line[0] == "pass":
                serial += 1
                self.add_pass(serial, *line[1:])
            elif line[0] == "ended":
                for number in line[3]:
                    self.end(number, line[1] - self.origin, line[2])
        self.passes, self.broken = serial, broken + lines.broken

    def add_pass(self, serial, times, is_behind, parts, decode, admitted, tokens, ends):
        for at in range(0, len(decode), 2):
            parts += [decode[at], DECODE, 1, decode[at + 1], 0]
        scheduling, scheduled, begin, end, taking, taken = (at - self.origin for at in times)
        self.behind += is_behind
        kinds = parts[1::5]
        self.table.add_outside("Scheduling", scheduling, scheduled)
        given = {
            "serial": serial,
            "phase": "prefill" if PROMPT in kinds else "decode",
            "tokens": sum(parts[2::5]),
            "position": parts[3] if len(kinds) == 1 else 0,
        }
        self.table.add_pass(given, begin, end, [], 0)
        self.table.add_outside("Taking in the result", taking, taken)
        for at in range(0, len(parts), 5):
            self.parts.append(serial)
            self.parts.append(self.index.get(parts[at], NOBODY))
            self.parts.extend(parts[at + 1:at + 5])
        for number in admitted:
            if number in self.index:
                self.requests[self.index[number]]["admitted_ns"] = scheduled
        for number in tokens:
            if number in self.index:
                self.requests[self.index[number]]["tokens_ns"].append(taken)
        for number, ending in zip(ends[::2], ends[1::2]):
            self.end(number, taken, ending)

    def end(self, number, at, ending):
        if number not in self.index:
            return
        one = self.requests[self.index[number]]
        one["ended_ns"] = at
        # Said while it was there: others may have had its name.
        if ending == "cancelled" and any(one["received_ns"] <= of - self.origin <= at for of in one["stopped_ns"]):
            ending = "stop"
        if ending is not None:
            one["ending"] = ending

    def rows(self):
        """The parts, as text."""
        for at in range(0, len(self.parts), 6):
            serial, request, kind, tokens, position, cached = self.parts[at:at + 6]
            found = ',"cached":%d' % cached if cached else ""
            yield '{"pass":%d,"request":%d,"kind":"%s","tokens":%d,"position":%d%s}' % (
                serial, request, KINDS[kind], tokens, position, found)

    def profile(self, file):
        about, kinds, tokens = self.about, self.parts[2::6], self.parts[3::6]
        requests = []
        for one in self.requests:
            one = {name: value for name, value in one.items() if name != "stopped_ns"}
            one["tokens_ns"] = one["tokens_ns"].tolist()
            if not one["tokens_ns"]:
                del one["tokens_ns"]
            requests.append(one)
        lacks = [
            "times of layers and bricks: a pass is one step of the engine core, as a whole",
            "what comes after the engine core: text of tokens, and sending it",
            "work: FLOPs and bytes",
        ]
        if self.without:
            lacks.append("when %d requests arrived: they count from when the engine core had them" % self.without)
        if self.off:
            lacks.append("all after a hook failed, in " + self.off)
        if self.broken:
            lacks.append("what was in %d lines that can't be read" % self.broken)
        doubts = []
        if self.behind:
            doubts.append("async scheduling: %d passes were handed over before the one before had its result, and "
                          "begin with that result" % self.behind)
        if self.has_drafts:
            doubts.append("speculative decoding with async scheduling: positions are as if all drafts under way had "
                          "been accepted")
        left_out = [["requests and passes after there was no more room, at least", self.missed]] if self.missed else []
        return recorder._profile(
            "brickscope_vllm.py",
            self.table,
            dropped={"passes": 0},
            run={
                # Who makes the run may be another program than who served.
                "command": about.get("command", []),
                "backend": "vLLM on " + (about.get("device") or "an unknown device"),
                # Unknown: the workers have them.
                "threads": 0,
                "prompt_tokens": sum(count for kind, count in zip(kinds, tokens) if kind == PROMPT),
                "generated_tokens": sum(len(one["tokens_ns"]) for one in self.requests),
                "seed": None,
            },
            model={
                "path": "",
                "name": about.get("model", ""),
                "architecture": about.get("architecture", ""),
                "quantization": about.get("quantization", ""),
                "file_bytes": 0,
                "parameters": 0,
                "layers": about.get("layers", 0),
                "embedding_length": about.get("embedding_length", 0),
                "synthetic": False,
            },
            process=about.get("process", 0),
            clock=dict(recorder._clock_info("monotonic"), anchors=self.anchors()),
            overhead={
                "span_ns": None,
                "spans": len(self.table.spans),
                "basis": "absent: what the hooks take was not measured in this run",
            },
            lanes=[{"name": "EngineCore", "tid": about.get("process", 0)}],
            requests=requests,
            imported={
                "format": "brickscope_vllm.py",
                "file": os.path.basename(file),
                "program": "vLLM %s" % about["version"] if about.get("version") else None,
                "lacks": [{"reason": reason} for reason in lacks],
                "left_out": left_out,
                "doubts": doubts,
                "conditions": about.get("conditions", []),
            },
        )

    def anchors(self):
        # Made after a reboot, or on another host, it has no clock to read any more.
        if not hasattr(time, "CLOCK_MONOTONIC_RAW") or self.boot is None or self.boot != _boot():
            return []
        before = clock()
        raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        unix = time.time_ns()
        after = clock()
        middle = (before + after) // 2
        at, width = middle - self.origin, after - before
        return [{"at_ns": at, "monotonic_ns": middle, "monotonic_raw_ns": raw, "unix_ns": unix, "width_ns": width}]


def main(arguments):
    if len(arguments) != 2 or not os.path.isdir(arguments[0]):
        print("usage: python -m brickscope_vllm FOLDER run.json    (of a killed server)", file=sys.stderr)
        return 2
    for written, requests, passes in finish(arguments[0], recorder._file_of(arguments[1])):
        print("%s: requests %d, passes %d" % (written, requests, passes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
