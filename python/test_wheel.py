"""Tests of `python/wheel`: which platforms it reads from a program, and what is in the wheel. Then one around the command that
BRICKSCOPE names, or else a stub, is installed in an environment of its own, without an index, and used there.

    python3 python/test_wheel.py
    BRICKSCOPE=target/dist/brickscope python3 python/test_wheel.py --frames    # with pyarrow and pandas of PyPI, too

With `--frames`, a model is run, and tables, a report and a notebook's cell are made of it. Exit status 3: PyPI can't be reached.
"""

import base64
import csv
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ.get("BRICKSCOPE")
RUN = HERE.parent / "tests/data/import/brickscope-py.json"
UNREACHABLE = 3


def module():
    loader = importlib.machinery.SourceFileLoader("brickscope_wheel", str(HERE / "wheel"))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(made)
    sys.dont_write_bytecode = before
    return made


wheel = module()

STUB = """#!/bin/sh
case $1 in
    --version) echo "brickscope %s" ;;
    export) echo phase,wall_ns ;;
    show) [ "$2" = --as ] && echo '{"model": {"name": "stub"}}' || echo "a screen" ;;
esac
"""


def elf(machine=62, interpreter=True, needed=("libc.so.6",), versions=("GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_PRIVATE")):
    """A program for Linux with as much as the loader reads of it: one segment of all, and a dynamic section."""
    strings, places = b"\0", {}
    for name in needed + versions:
        places[name] = len(strings)
        strings += name.encode() + b"\0"
    at_strings = 64 + 3 * 56
    at_versions = at_strings + len(strings)
    of_versions = struct.pack("<HHIII", 1, len(versions), 0, 16, 0)
    for name in versions:
        of_versions += struct.pack("<IHHII", 0, 0, 0, places[name], 16)
    at_dynamic = at_versions + len(of_versions)
    base = 0x400000
    entries = [(5, base + at_strings), (0x6FFFFFFE, base + at_versions)] + [(1, places[name]) for name in needed]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    length = at_dynamic + len(dynamic)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0)

    def segment(kind, offset, size):
        return struct.pack("<IIQQQQQQ", kind, 4, offset, base + offset, 0, size, size, 8)

    first = segment(3 if interpreter else 4, at_strings, 1)
    return (header + first + segment(1, 0, length) + segment(2, at_dynamic, len(dynamic)) + strings + of_versions + dynamic)


def mach(cpu, *commands):
    return b"\xcf\xfa\xed\xfe" + struct.pack("<IIIIIII", cpu, 0, 2, len(commands), 0, 0, 0) + b"".join(commands)


class Platforms(unittest.TestCase):
    def unfit(self, data):
        with self.assertRaises(wheel.Unfit) as caught:
            wheel.tags(data)
        return str(caught.exception)

    def test_a_program_needs_a_c_library_as_new_as_its_newest_symbol(self):
        self.assertEqual(wheel.tags(elf()), ["manylinux_2_34_x86_64"])
        self.assertEqual(wheel.tags(elf(machine=183, versions=("GLIBC_2.4",))), ["manylinux_2_17_aarch64"])

    def test_packed_relocations_need_the_first_c_library_that_knows_them(self):
        self.assertEqual(wheel.tags(elf(versions=("GLIBC_2.34", "GLIBC_ABI_DT_RELR"))), ["manylinux_2_36_x86_64"])

    def test_a_static_program_runs_with_any(self):
        self.assertEqual(wheel.tags(elf(interpreter=False)),
                         ["manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"])

    def test_a_library_that_may_be_missing_is_refused(self):
        self.assertIn("libssl.so.3", self.unfit(elf(needed=("libc.so.6", "libssl.so.3"))))

    def test_a_mac_has_a_first_version(self):
        built = struct.pack("<IIIIII", 0x32, 24, 1, 13 << 16 | 3 << 8, 0, 0)
        self.assertEqual(wheel.tags(mach(0x0100000C)), ["macosx_11_0_arm64"])
        self.assertEqual(wheel.tags(mach(0x0100000C, built)), ["macosx_13_0_arm64"])
        oldest = struct.pack("<IIII", 0x24, 16, 10 << 16 | 12 << 8, 0)
        self.assertEqual(wheel.tags(mach(0x01000007, oldest)), ["macosx_10_12_x86_64"])

    def test_other_and_damaged_files_are_refused(self):
        self.assertIn("--platform", self.unfit(b"#!/bin/sh\n"))
        self.assertIn("number 7", self.unfit(elf(machine=7)))
        self.assertIn("don't end", self.unfit(mach(0x0100000C, struct.pack("<IIII", 1, 0, 0, 0))))
        whole = elf()
        for length in range(4, len(whole)):
            try:
                wheel.tags(whole[:length])
            except wheel.Unfit:
                pass


class Wheels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.place.name)
        cls.version = wheel.field("version")
        stub = cls.folder / "stub"
        stub.write_text(STUB % cls.version)
        stub.chmod(0o755)
        cls.program = pathlib.Path(PROGRAM).resolve() if PROGRAM else stub
        # Of a stub, the one of this machine, whichever it is.
        cls.platform = [] if PROGRAM else ["--platform", "linux_" + os.uname().machine]
        if sys.platform == "darwin" and not PROGRAM:
            cls.platform = ["--platform", "macosx_11_0_" + os.uname().machine]
        cls.wheel = cls.made("a")

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    @classmethod
    def made(cls, folder):
        command = [sys.executable, HERE / "wheel", cls.program, "--out", cls.folder / folder, *cls.platform]
        done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        return pathlib.Path(done.stdout.strip())

    def test_versions_are_the_workspaces(self):
        root = (HERE.parent / "Cargo.toml").read_text().split("[workspace.package]")[1]
        self.assertEqual(re.search(r'^version = "(.*)"$', root, re.M)[1], self.version)
        recorder = (HERE / "brickscope/recorder.py").read_text()
        self.assertIn('VERSION = "%s"' % self.version, recorder)

    def test_the_same_files_make_the_same_wheel(self):
        again = self.made("b")
        self.assertEqual(again.name, self.wheel.name)
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())
        self.assertEqual([path.name for path in again.parent.iterdir()], [again.name])

    def test_the_record_has_each_file_and_its_digest(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            record = next(name for name in names if name.endswith(".dist-info/RECORD"))
            rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
            self.assertEqual([name for name, _, _ in rows], names)
            for name, digest, size in rows[:-1]:
                data = archive.read(name)
                told = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual((digest, size), ("sha256=" + told, str(len(data))))
            self.assertEqual(rows[-1], [record, "", ""])
            self.assertEqual(len(set(names)), len(names))

    def test_it_has_the_whole_package_and_no_tests(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            for path in (HERE / "brickscope").glob("*.py"):
                self.assertEqual(archive.read("brickscope/" + path.name), path.read_bytes())
            self.assertFalse([name for name in names if "test" in name or "pycache" in name])
            program = "brickscope-%s.data/scripts/brickscope" % self.version
            for entry in archive.infolist():
                self.assertEqual(bool(entry.external_attr >> 16 & 0o111), entry.filename == program)

    def test_its_metadata_is_what_pip_would_make_of_the_project(self):
        with zipfile.ZipFile(self.wheel) as archive:
            info = "brickscope-%s.dist-info/" % self.version
            said = archive.read(info + "METADATA").decode()
            points = archive.read(info + "entry_points.txt").decode()
            tags = re.findall(r"^Tag: (.*)$", archive.read(info + "WHEEL").decode(), re.M)
        self.assertIn('Provides-Extra: pandas\nRequires-Dist: pandas; extra == "pandas"\n', said)
        self.assertIn("`pip install 'brickscope[arrow]'`", said)
        self.assertIn("`pip install './brickscope-….whl[arrow]'`", said)
        self.assertIn("Requires-Python: >=3.9\n", said)
        self.assertEqual(points, "[vllm.general_plugins]\nbrickscope = brickscope_vllm:register\n")
        of_name = self.wheel.name[:-len(".whl")].split("-")[-1].split(".")
        self.assertEqual(tags, ["py3-none-" + platform for platform in of_name])

    @unittest.skipIf(PROGRAM, "of the stub")
    def test_a_program_of_another_version_is_refused(self):
        other = self.folder / "other"
        other.write_text(STUB % "9.9.9")
        other.chmod(0o755)
        command = [sys.executable, HERE / "wheel", other, "--out", self.folder / "none", *self.platform]
        done = subprocess.run(command, stderr=subprocess.PIPE, universal_newlines=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("brickscope 9.9.9", done.stderr)
        self.assertFalse((self.folder / "none").exists())

    def test_it_is_installed_without_an_index_and_used(self):
        environment = Environment(self.folder / "clean", self.wheel)
        self.assertEqual(environment.said("brickscope", "--version"), "brickscope %s\n" % self.version)
        self.assertEqual(environment.said("python", "-m", "brickscope", "--version"), "brickscope %s\n" % self.version)
        found = environment.said("python", "-c", "import brickscope.command as c; print(c.find())").strip()
        self.assertEqual(found, str(environment.folder / "bin/brickscope"))
        name = environment.said(
            "python", "-c", "import brickscope, sys; print(brickscope.load(sys.argv[1]).summary['model']['name'])", RUN)
        self.assertEqual(name.strip(), "TinyForCausalLM" if PROGRAM else "stub")
        points = "from importlib.metadata import distribution as of; print([p.load() for p in of('brickscope').entry_points])"
        self.assertIn("function register", environment.said("python", "-c", points))
        # Nothing of it stays.
        environment.said("python", "-m", "pip", "uninstall", "--quiet", "--yes", "brickscope")
        self.assertFalse((environment.folder / "bin/brickscope").exists())


class Environment:
    """An environment of its own, with the wheel."""

    def __init__(self, folder, of):
        self.folder = folder.resolve()
        subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        self.said("python", "-m", "pip", "install", "--quiet", "--no-index", of)

    def said(self, program, *arguments):
        # Neither the caller's command nor its packages.
        clean = {name: value for name, value in os.environ.items() if name not in ("BRICKSCOPE", "PYTHONPATH")}
        return subprocess.run([self.folder / "bin" / program, *arguments], env=clean, cwd=self.folder,
                              stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout


# What a user does, with what a model's run has.
USE = """
import json, sys
import brickscope
run = brickscope.load("run")
told = json.load(open("run/profile.json"))
assert run.passes.column("wall_ns").to_pylist()[:len(told["passes"])] == [one["wall_ns"] for one in told["passes"]]
assert run.spans.num_rows >= len(told["spans"]["rows"]) > 0
decode = run.summary["phases"][-1]
of_host = [row for row in run.bricks.to_pylist() if row["phase"] == decode["phase"] and row["device"] is None]
assert sum(row["exclusive_ns"] for row in of_host) == decode["attributed_ns"], decode
frame = brickscope.load("run", frames="pandas").passes
assert int(frame["wall_ns"].sum()) == sum(run.passes.column("wall_ns").to_pylist())
assert "<html" in run.report().html
print("%d passes, %d spans, %d bricks" % (run.passes.num_rows, run.spans.num_rows, run.bricks.num_rows))
"""


def frames():
    """The same of a real run, with the packages of PyPI. Returns the exit status."""
    if not PROGRAM:
        print("BRICKSCOPE=PROGRAM is needed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        command = [sys.executable, HERE / "wheel", pathlib.Path(PROGRAM).resolve(), "--out", folder]
        of = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, check=True).stdout.strip()
        environment = Environment(folder / "clean", of)
        pip = [environment.folder / "bin/python", "-m", "pip", "install", "--quiet", "pyarrow", "pandas", "ipython"]
        if subprocess.run(pip, check=False).returncode != 0:
            print("skipped: PyPI couldn't be reached", file=sys.stderr)
            return UNREACHABLE
        environment.said("brickscope", "profile", "--tokens", "8", "--out", "run")
        print(environment.said("python", "-c", USE).strip())
        # The tests of the tables and the notebook, with the installed command.
        tests = dict(os.environ, BRICKSCOPE=str(environment.folder / "bin/brickscope"))
        return subprocess.run([environment.folder / "bin/python", HERE / "test_run.py"], env=tests, check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:] == ["--frames"]:
        sys.exit(frames())
    unittest.main()
