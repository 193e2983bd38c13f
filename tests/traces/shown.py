"""What brickscope says of files: the command, its JSON, and what a run has of each kernel."""

import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")).absolute()
# Where these checks keep what they make and fetch.
FOLDER = TARGET / "traces"
BRICKSCOPE = os.path.abspath(os.environ.get("BRICKSCOPE", TARGET / "debug" / "brickscope"))
SHARED = pathlib.Path(os.environ.get("BRICKSCOPE_TRACES", REPOSITORY.parent / "shared" / "traces"))


class NotImported(Exception):
    """What brickscope says of a file that it doesn't import."""


def brickscope(*words):
    command = [BRICKSCOPE, *(str(word) for word in words)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, "NO_COLOR": "1"})
    return run.returncode, run.stdout, run.stderr


def imported(run, *words):
    """The JSON of a run that is made of these files and options."""
    code, _, said = brickscope("import", *words, "--out", run)
    if code:
        raise NotImported(said.strip())
    return profile(run)


def profile(run):
    code, text, said = brickscope("show", run, "--as", "json")
    if code:
        raise NotImported(said.strip())
    return json.loads(text)


def spans(stream):
    columns = stream["spans"]["columns"]
    return [dict(zip(columns, row)) for row in stream["spans"]["rows"]]


def kernels(device, names):
    """Each kernel and copy of a device in the order of time: name, start, duration, layer, and the brick that it is in."""
    found = []
    for stream in device["streams"]:
        rows = spans(stream)
        for row in rows:
            if names[row["name"]]["kind"] != "kernel":
                continue
            around = rows[row["parent"]] if row["parent"] is not None else None
            found.append({
                "name": names[row["name"]]["name"],
                "start": row["start_ns"],
                "ns": row["duration_ns"],
                "layer": row["layer"],
                "brick": names[around["name"]]["name"] if around else None,
            })
    return sorted(found, key=lambda kernel: (kernel["start"], kernel["ns"], kernel["name"]))


def told(title, rows):
    """Prints rows of what is compared, both figures and whether they are equal. How many aren't."""
    wrong = [row for row in rows if not row[-1]]
    print(f"{'NO' if wrong else 'ok'}  {title:44} {len(rows) - len(wrong)} of {len(rows)} as they should be")
    for what, ours, theirs, is_right in rows:
        print(f"  {'  ' if is_right else 'NO'}  {what}: {ours} | {theirs}")
    return len(wrong)
