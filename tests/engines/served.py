"""A llama-server, alone or under `brickscope run`, and what its clients get: what `kept` and `cost` share."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from common import Wrong

CPUS = sorted(os.sched_getaffinity(0))


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def apart():
    """Leaves the first CPU to the server: this program, its threads and what it starts otherwise have the others."""
    if len(CPUS) > 1:
        os.sched_setaffinity(0, CPUS[1:])


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def below(process):
    """The processes that this one started, and those that they did."""
    found = []
    for children in pathlib.Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *below(child)]
    return found


class Server:
    """A server, as long as the block goes on: then nothing of it is left, whatever comes between."""

    def __init__(self, tools, model, slots, folder, under=()):
        self.port, self.folder, self.under = free_port(), pathlib.Path(folder), list(under)
        # How it ended, as a shell says it.
        self.child, self.status = None, None
        # Without repacked weights: with them, this version crashes on processors that have AMX, alone, too. With one cache
        # for all slots, else a pass of a prompt and of tokens is two graphs. Without a log: nobody reads it meanwhile.
        self.line = ["taskset", "-c", CPUS[0], tools / "llama-server", "-m", model, "-t", 1, "-np", slots, "-c", 512 * slots]
        self.line += ["--port", self.port, "--no-repack", "--kv-unified", "--log-disable"]

    def __enter__(self):
        self.errors = (self.folder / "errors").open("w+")
        # So that a recording that nobody reads goes with the folder.
        environment = {**os.environ, "NO_COLOR": "1", "TMPDIR": str(self.folder)}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": self.errors}
        try:
            line = [str(word) for word in [*self.under, *self.line]]
            self.child = subprocess.Popen(line, env=environment, start_new_session=True, **pipes)
            self.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def wait(self):
        """Until it is healthy."""
        for _ in range(1200):
            if self.child.poll() is not None:
                raise Wrong(f"the server ended with {self.child.returncode}:\n{self.said()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.05)
        raise Wrong(f"the server never was healthy:\n{self.said()}")

    def process(self):
        """The server itself, whatever is around it."""
        names = {of: pathlib.Path(f"/proc/{of}/comm").read_text() for of in [self.child.pid, *below(self.child.pid)]}
        return next(of for of, name in names.items() if name.startswith("llama-server"))

    def said(self):
        return (self.folder / "errors").read_text(errors="replace")[-3000:]

    def end(self):
        """Ends it as its user does, and says what was said."""
        self.child.terminate()
        try:
            code = self.child.wait(timeout=300)
        except subprocess.TimeoutExpired:
            raise Wrong(f"the server didn't end in 300 s:\n{self.said()}") from None
        # `brickscope run` can't end by its program's signal, and says it as a shell does.
        self.status = code if code >= 0 else 128 - code
        return self.said()

    def __exit__(self, *_):
        if self.child is not None:
            # Those that left its group.
            for process in below(self.child.pid) if self.child.poll() is None else []:
                with contextlib.suppress(OSError):
                    os.kill(process, signal.SIGKILL)
            # Where `brickscope run` itself died, the server is nobody's child that is known here.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        self.errors.close()


def body(prompt, tokens):
    """What a client asks. Whoever asks the same gets the same, as far as passes of others' tokens compute the same."""
    more = {"temperature": 0, "seed": 1, "stream": True, "ignore_eos": True, "cache_prompt": False}
    return {"prompt": prompt, "max_tokens": tokens, **more}


class Answer:
    """What a client got: when it asked, each piece with text and when it came, and what the server says in the end."""

    def __init__(self):
        self.asked, self.ended, self.name, self.timings, self.error = now(), None, None, None, None
        self.pieces, self.texts = [], []

    def read(self, port, asking, ends=None):
        """Asks and reads, at most until `ends()` says that it is over."""
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
            head = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(asking), head)
            reply = connection.getresponse()
            if reply.status != 200:
                raise ValueError(f"status {reply.status}: {reply.read(300)}")
            while line := reply.readline():
                if not line.startswith(b"data: {"):
                    continue
                at, event = now(), json.loads(line[6:])
                # An answer that has begun has its status, whatever comes.
                if "error" in event:
                    raise ValueError(f"an error in the answer: {event['error']}")
                self.name = event.get("id", self.name)
                self.timings = event.get("timings", self.timings)
                # As docs/requests.md says: a token is a piece with text.
                if event.get("choices") and event["choices"][0].get("text"):
                    self.pieces.append(at)
                    self.texts.append(event["choices"][0]["text"])
                if ends and ends():
                    break
            else:
                self.check_length(asking)
            connection.close()
            self.ended = now()
        except (OSError, ValueError, http.client.HTTPException) as why:
            self.error = repr(why)
        return self

    def check_length(self, asking):
        """An answer that wasn't cut has as many tokens as were asked for, where the server says how many."""
        if self.timings and self.timings["predicted_n"] != asking["max_tokens"]:
            raise ValueError(f"{self.timings['predicted_n']} tokens of {asking['max_tokens']} came")
