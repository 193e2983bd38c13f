"""The command `brickscope`: where it is, and what it says."""

import os
import pathlib
import shutil
import subprocess
import sysconfig
import warnings
from typing import Iterator, List, Optional, Tuple

# Names the program, before any other place.
VARIABLE = "BRICKSCOPE"


class CommandNotFound(RuntimeError):
    """There is no command `brickscope` here."""


class CommandError(RuntimeError):
    """The command failed; this is what it said."""


def _folders() -> Iterator[str]:
    """Where an installer puts the programs of a package, the likeliest first."""
    package = pathlib.Path(__file__).resolve().parent
    if package.parent.name in ("site-packages", "dist-packages") and len(package.parents) > 3:
        # Of an environment, or of `pip install --prefix`.
        yield str(package.parents[3] / "bin")
    # Of `pip install --target`.
    yield str(package.parent / "bin")
    yield sysconfig.get_path("scripts")
    user = "%s_user" % os.name
    if user in sysconfig.get_scheme_names():
        yield sysconfig.get_path("scripts", user)


def find() -> str:
    """The path of the command: what BRICKSCOPE names, the one installed with this package, or one on the PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise CommandNotFound("%s names %s, which can't be run" % (VARIABLE, named))
        return os.path.abspath(found)
    for folder in _folders():
        found = shutil.which("brickscope", path=folder)
        if found is not None:
            return found
    found = shutil.which("brickscope")
    if found is None:
        raise CommandNotFound(
            "the command brickscope isn't installed. A wheel of a release has it (`pip install brickscope-….whl`), a "
            "clone hasn't: build it there (`cargo install --path cli --profile dist --features full`), or name it by "
            "the variable %s" % VARIABLE)
    return found


def _notes(said: str) -> Tuple[List[str], str]:
    """The notes of what the command said on stderr, and the rest."""
    notes, rest = [], []  # type: Tuple[List[str], List[str]]
    for line in said.splitlines():
        if line.startswith("note: "):
            notes.append(line[len("note: "):])
        elif line.startswith(" ") and notes and not rest:
            notes[-1] += " " + line.strip()
        else:
            rest.append(line)
    return notes, "\n".join(rest).strip()


def call(arguments: List[str], folder: Optional[str] = None) -> Tuple[bytes, List[str]]:
    """What the command writes to standard output, and its notes. If it fails, what it says is the error."""
    try:
        done = subprocess.run([find()] + arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=folder, check=False)
    except OSError as error:
        raise CommandError("the command brickscope can't be run: %s" % error) from error
    notes, rest = _notes(done.stderr.decode("utf-8", "replace"))
    if done.returncode != 0:
        if rest.startswith("brickscope: "):
            rest = rest[len("brickscope: "):]
        raise CommandError(rest or "brickscope %s ended with %d and said nothing" % (arguments[0], done.returncode))
    return done.stdout, notes


def tell(notes: List[str]) -> None:
    """Passes notes of the command on."""
    for note in notes:
        warnings.warn("brickscope: " + note, stacklevel=4)
