"""What scripts here share: settings of the environment, brickscope, llama.cpp's tools, an interval, how a script ends."""

import importlib.machinery
import importlib.util
import math
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("figures", str(HERE / "figures"))
figures = importlib.util.module_from_spec(importlib.util.spec_from_loader("figures", loader))
loader.exec_module(figures)

UNREACHABLE = figures.UNREACHABLE
FOLDER = figures.TARGET / "engines"


class Wrong(Exception):
    """What ends this script, in a sentence."""


def number(name, default, least):
    """A number of the environment."""
    text = os.environ.get(name, str(default))
    if not text.isdigit() or int(text) < least:
        raise Wrong(f"{name}={text}: it has to be a number of at least {least}")
    return int(text)


def checked(line, **more):
    """Runs a command. If it fails, its errors are said."""
    pipes = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run([str(word) for word in line], **pipes, **more)
    except subprocess.TimeoutExpired as why:
        raise Wrong(str(why)) from None
    if done.returncode:
        raise Wrong(f"{shlex.join(map(str, line))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def run_within(line, seconds, folder=None):
    """Runs brickscope: its exit code and what it printed, or None if it takes longer. Then nothing of it goes on."""
    environment = {**os.environ, "NO_COLOR": "1", "BRICKSCOPE_CACHE": str(FOLDER / "cache"), "GIT_CONFIG_GLOBAL": os.devnull}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    child = subprocess.Popen(line, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)
    try:
        out, err = child.communicate(timeout=seconds)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGINT)
            try:
                child.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()


def tools():
    """The folder of llama.cpp's tools, which may have to be built; None if their sources can't be had."""
    if not (figures.FOLDER / "done").exists():
        print("building llama.cpp's tools, which takes some 10 minutes", flush=True)
    return figures.tools()


# Student's t, two-sided 95 %, by degrees of freedom.
T95 = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09]


def mean_of(values):
    """The mean of two values or more, and its 95 % interval."""
    mean, error = statistics.mean(values), statistics.stdev(values) / math.sqrt(len(values))
    half = error * T95[min(len(values) - 1, len(T95)) - 1]
    return mean, mean - half, mean + half


def guarded(main):
    """What a script ends with."""
    # Its default ends this at once, and what it started would go on.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return main()
    except (Wrong, OSError, subprocess.CalledProcessError) as why:
        print(f"{pathlib.Path(sys.argv[0]).name}: {why}", file=sys.stderr)
        return 2
    except Exception:  # An exit code of 1 says that what is tested is wrong.
        traceback.print_exc()
        return 2


class Settings:
    """What `versus` and `bisect` take: THREADS, MODEL, BRICKSCOPE."""

    def __init__(self):
        self.threads = number("THREADS", 1, 1)
        self.model = os.environ.get("MODEL")
        self.brickscope = os.environ.get("BRICKSCOPE")
        if self.model and not pathlib.Path(self.model).is_file():
            raise Wrong(f"MODEL: there is no file {self.model}")

    def ready(self):
        """Builds brickscope, and makes the model."""
        if self.brickscope is None:
            self.brickscope = str(figures.built())
        if self.model is None:
            made = FOLDER / "versus-110m.gguf"
            if not made.exists():
                FOLDER.mkdir(parents=True, exist_ok=True)
                temporary = made.with_suffix(".new")
                checked([self.brickscope, "synth", "--shape", "110m", "-o", temporary])
                temporary.rename(made)
            self.model = made
        self.model = pathlib.Path(self.model).resolve()
