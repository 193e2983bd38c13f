"""Reads speedscope's, pprof's and folded stacks of a profile, and holds them to it and to one another.

    stacks.py PROFILE.json SPEEDSCOPE.json STACKS.folded PROFILE.pb.gz
"""

import collections
import gzip
import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import jsonschema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.unknown_fields import UnknownFieldSet

from expected import Profile, phase_walls, same

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = REPOSITORY / "tests" / "analysis" / "export" / "speedscope-1.25.0.schema.json"

# https://github.com/google/pprof/blob/main/proto/profile.proto: of each message the fields, with type and
# number; `*` is for repeated ones.
PPROF = {
    "Profile": "*ValueType sample_type 1,*Sample sample 2,*Mapping mapping 3,*Location location 4,*Function function 5,"
    "*string string_table 6,int64 drop_frames 7,int64 keep_frames 8,int64 time_nanos 9,int64 duration_nanos 10,"
    "ValueType period_type 11,int64 period 12,*int64 comment 13,int64 default_sample_type 14,int64 doc_url 15",
    "ValueType": "int64 type 1,int64 unit 2",
    "Sample": "*uint64 location_id 1,*int64 value 2,*Label label 3",
    "Label": "int64 key 1,int64 str 2,int64 num 3,int64 num_unit 4",
    "Mapping": "uint64 id 1,uint64 memory_start 2,uint64 memory_limit 3,uint64 file_offset 4,int64 filename 5,int64 build_id 6",
    "Location": "uint64 id 1,uint64 mapping_id 2,uint64 address 3,*Line line 4,bool is_folded 5",
    "Line": "uint64 function_id 1,int64 line 2,int64 column 3",
    "Function": "uint64 id 1,int64 name 2,int64 system_name 3,int64 filename 4,int64 start_line 5",
}


def pprof_message():
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in PPROF.items():
        message = file.message_type.add(name=name)
        for kind, field, number in (text.split() for text in fields.split(",")):
            entry = message.field.add(name=field, number=int(number))
            entry.label = kinds.LABEL_REPEATED if kind[0] == "*" else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in PPROF:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".pprof.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))


def known_only(message):
    if len(UnknownFieldSet(message)):
        sys.exit(f"pprof: {message.DESCRIPTOR.name} has fields that profile.proto does not know")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                known_only(inner)


def of_speedscope(path):
    file = json.loads(pathlib.Path(path).read_text())
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(file)
    (profile,) = file["profiles"]
    frames = [frame["name"] for frame in file["shared"]["frames"]]
    stacks = collections.Counter()
    for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
        stacks[tuple(frames[at] for at in sample)] += weight
    same("speedscope: the end", profile["endValue"], sum(stacks.values()))
    return stacks


def of_pprof(path):
    with gzip.open(path) as file:
        data = pprof_message().FromString(file.read())
    known_only(data)
    texts = data.string_table
    same("pprof: the first text", texts[0], "")
    same("pprof: what is counted", [(texts[t.type], texts[t.unit]) for t in data.sample_type], [("time", "nanoseconds")])
    functions = {function.id: texts[function.name] for function in data.function}
    lines = {location.id: [functions[line.function_id] for line in location.line] for location in data.location}
    stacks = collections.Counter()
    for sample in data.sample:
        names = [name for location in sample.location_id for name in lines[location]]
        stacks[tuple(reversed(names))] += sample.value[0]
    if shutil.which("go"):
        run = subprocess.run(["go", "tool", "pprof", "-raw", path], capture_output=True, text=True)
        if "no such tool" in run.stderr:
            return stacks
        if run.returncode != 0:
            sys.exit(f"go tool pprof: {run.stderr}")
        samples = run.stdout.split("Samples:\n", 1)[1].split("Locations\n", 1)[0]
        found = sum(int(weight) for weight in re.findall(r"^ *(\d+): ", samples, re.MULTILINE))
        same("the sum that go's pprof reads", found, sum(stacks.values()))
    return stacks


def unescaped(name):
    return "" if name == "%" else urllib.parse.unquote(name)


def of_folded(path):
    stacks = collections.Counter()
    # The only ends of lines are those that the format means.
    for line in pathlib.Path(path).read_bytes().decode().split("\n")[:-1]:
        stack, weight = line.rsplit(" ", 1)
        stacks[tuple(unescaped(name) for name in stack.split(";"))] += int(weight)
    return stacks


def main(profile_path, speedscope, folded, pprof):
    profile = Profile(profile_path)
    stacks = of_speedscope(speedscope)
    same("pprof beside speedscope", of_pprof(pprof), stacks)
    if folded != "-":
        same("folded stacks beside speedscope", of_folded(folded), stacks)
    # By phase, to the nanosecond. What a device of several streams did has walls over all of them.
    if not profile.json.get("devices"):
        sums = collections.Counter()
        for names, weight in stacks.items():
            sums[names[0]] += weight
        same("sums by phase", dict(sums), phase_walls(profile))
    print(f"{len(stacks)} stacks, {sum(stacks.values())} ns")


if __name__ == "__main__":
    main(*sys.argv[1:])
