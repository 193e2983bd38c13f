"""What ran on devices by the files of Nsight Systems and rocprofv3, in SQL or from JSON and CSV: no more than begins, ends and
names. Independent of brickscope but for the names of copies, which are Kineto's.
"""

import csv
import gzip
import io
import json
import re
import sqlite3
from collections import Counter, defaultdict


def work(path):
    """By device, a list of begin, end and name, and by device and name the sum as the database itself finds it. `None` for
    a file that is none of these."""
    head = path.read_bytes()[:16]
    if head.startswith(b"SQLite format 3\0"):
        return of_database(path)
    data = gzip.decompress(path.read_bytes()) if head[:2] == b"\x1f\x8b" else path.read_bytes()
    if data.lstrip()[:200].lstrip(b"{ \n\r\t").startswith(b'"rocprofiler-sdk-tool"'):
        return of_json(json.loads(data))
    if data[:200].startswith((b'"Kind"', b"Kind,")):
        return of_csv(data.decode())
    return None


def of_database(path):
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as base:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "CUPTI_ACTIVITY_KIND_KERNEL" in tables:
            query = of_nsight(tables)
        elif any(name.startswith("rocpd_kernel_dispatch") for name in tables):
            query = of_rocpd(tables)
        else:
            return None
        devices = defaultdict(list)
        for device, name, begin, end in base.execute(query):
            devices[device].append((begin, end, name))
        sums = defaultdict(Counter)
        for device, name, nanos in base.execute(f"SELECT device, name, SUM(end - begin) FROM ({query}) GROUP BY 1, 2"):
            sums[device][name] = nanos
    return dict(devices), sums


def of_nsight(tables):
    # The number of the GPU that a process calls so, where the file says it.
    device = "t.deviceId"
    if "TARGET_INFO_CUDA_DEVICE" in tables:
        device = (
            "COALESCE((SELECT d.gpuId FROM TARGET_INFO_CUDA_DEVICE d WHERE d.cudaId = t.deviceId"
            " AND d.pid = (t.globalPid >> 24) & 16777215), t.deviceId)"
        )
    parts = [
        f"SELECT {device} AS device, s.value AS name, t.start AS begin, t.end AS end"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL t JOIN StringIds s ON s.id = t.demangledName"
    ]
    # The numbers are CUPTI's, which the newer files also have names for.
    kinds = "HtoD DtoH HtoA AtoH AtoA AtoD DtoA DtoD HtoH PtoP".split()
    kind = "CASE t.copyKind " + " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(kinds, 1)) + " END"
    memory = "(SELECT m.label FROM ENUM_CUDA_MEM_KIND m WHERE m.id = {})"
    copy = f"'Memcpy ' || {kind} || ' (' || {memory.format('t.srcKind')} || ' -> ' || {memory.format('t.dstKind')} || ')'"
    fill = f"'Memset (' || {memory.format('t.memKind')} || ')'"
    whole = "'CUDA graph ' || t.graphId || ' (its kernels were not recorded)'"
    for table, name in (("MEMCPY", copy), ("MEMSET", fill), ("GRAPH_TRACE", whole)):
        if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
            parts.append(f"SELECT {device}, {name}, t.start, t.end FROM CUPTI_ACTIVITY_KIND_{table} t")
    return " UNION ALL ".join(parts)


def of_rocpd(tables):
    parts = []
    for kernels in sorted(name for name in tables if name.startswith("rocpd_kernel_dispatch")):
        end = kernels.removeprefix("rocpd_kernel_dispatch")
        parts.append(
            "SELECT k.agent_id AS device, COALESCE(s.display_name, s.kernel_name) AS name, k.start AS begin, k.end AS end"
            f" FROM {kernels} k JOIN rocpd_info_kernel_symbol{end} s ON s.id = k.kernel_id"
        )
        if f"rocpd_memory_copy{end}" in tables:
            parts.append(
                "SELECT CASE n.string WHEN 'MEMORY_COPY_DEVICE_TO_HOST' THEN m.src_agent_id ELSE m.dst_agent_id END,"
                " CASE n.string WHEN 'MEMORY_COPY_HOST_TO_DEVICE' THEN 'Memcpy HtoD'"
                " WHEN 'MEMORY_COPY_DEVICE_TO_HOST' THEN 'Memcpy DtoH' ELSE 'Memcpy DtoD' END, m.start, m.end"
                f" FROM rocpd_memory_copy{end} m JOIN rocpd_string{end} n ON n.id = m.name_id"
            )
    return " UNION ALL ".join(parts)


def of_json(read):
    devices = defaultdict(list)
    for process in read["rocprofiler-sdk-tool"]:
        symbols = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in process["kernel_symbols"]}
        buffers = process["buffer_records"]
        for record in whole(buffers.get("kernel_dispatch")):
            info = record["dispatch_info"]
            name = symbols.get(info["kernel_id"]) or f"kernel {info['kernel_id']}, whose name isn't stated"
            devices[info["agent_id"]["handle"]].append((record["start_timestamp"], record["end_timestamp"], name))
        kinds = {agent["id"]["handle"]: "Device" if agent["type"] == 2 else "Host" for agent in process["agents"]}
        for record in whole(buffers.get("memory_copy")):
            ends = [record["src_agent_id"]["handle"], record["dst_agent_id"]["handle"]]
            source, target = (kinds[end] for end in ends)
            if "Device" in (source, target):
                name = f"Memcpy {source[0]}to{target[0]} ({source} -> {target})"
                device = ends[target == "Device"]
                devices[device].append((record["start_timestamp"], record["end_timestamp"], name))
    return dict(devices), None


def whole(records):
    return [record for record in records or [] if "start_timestamp" in record and "end_timestamp" in record]


def of_csv(text):
    devices = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        if not all(str(row[key]).isdigit() for key in ("Start_Timestamp", "End_Timestamp")):
            continue
        number = int(re.search(r"\d+", row["Agent_Id"]).group())
        devices[number].append((int(row["Start_Timestamp"]), int(row["End_Timestamp"]), row["Kernel_Name"]))
    return dict(devices), None


# The forms in which rocprofv3 writes what it recorded, made of its JSON.


def dispatches(path):
    read = json.loads(gzip.decompress(path.read_bytes()))
    for process in read["rocprofiler-sdk-tool"]:
        symbols = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in process["kernel_symbols"]}
        for record in process["buffer_records"]["kernel_dispatch"]:
            info = record["dispatch_info"]
            yield record, info, symbols[info["kernel_id"]]


def as_csv(path, to):
    sizes = [f"{size}_Size_{axis}" for size in ("Workgroup", "Grid") for axis in "XYZ"]
    with to.open("w", newline="") as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        table.writerow([
            "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
            "Correlation_Id", "Start_Timestamp", "End_Timestamp", "Private_Segment_Size", "Group_Segment_Size", *sizes])
        for record, info, name in dispatches(path):
            table.writerow([
                "KERNEL_DISPATCH", "Agent 2", info["queue_id"]["handle"], record["stream_id"]["handle"],
                record["thread_id"], info["dispatch_id"], info["kernel_id"], name, record["correlation_id"]["internal"],
                record["start_timestamp"], record["end_timestamp"], info["private_segment_size"],
                info["group_segment_size"], *info["workgroup_size"].values(), *info["grid_size"].values()])


def as_rocpd(path, schema, to):
    """`schema` is SQL that makes a database of this kind, whose kernels and copies are replaced."""
    with sqlite3.connect(to) as base:
        base.executescript(schema)
        tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = {name.rsplit("_", 1)[0]: name for name in tables}
        for name in ("kernel_dispatch", "memory_copy", "info_kernel_symbol", "event", "region"):
            base.execute(f"DELETE FROM {table['rocpd_' + name]}")
        symbols = {}
        for record, info, name in dispatches(path):
            if name not in symbols:
                symbols[name] = len(symbols) + 1
                base.execute(f"INSERT INTO {table['rocpd_info_kernel_symbol']} VALUES (?, ?, ?)",
                             (symbols[name], name + ".kd", name))
            values = {
                "id": info["dispatch_id"], "nid": 1, "pid": 1, "tid": 1, "agent_id": 2, "kernel_id": symbols[name],
                "dispatch_id": info["dispatch_id"], "queue_id": info["queue_id"]["handle"],
                "stream_id": record["stream_id"]["handle"], "start": record["start_timestamp"],
                "end": record["end_timestamp"], "group_segment_size": info["group_segment_size"],
                **{f"{size}_size_{axis}": info[f"{size}_size"][axis] for size in ("workgroup", "grid") for axis in "xyz"},
            }
            base.execute(f"INSERT INTO {table['rocpd_kernel_dispatch']} ({', '.join(values)})"
                         f" VALUES ({', '.join('?' * len(values))})", tuple(values.values()))
