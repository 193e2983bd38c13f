"""Reads the tables of a profile as CSV by Python and as Parquet by DuckDB, and holds them to it.

    tables.py PROFILE.json SPANS.csv PASSES.csv TOTALS.csv SPANS.parquet
"""

import csv
import sys

import duckdb

from expected import Profile, same

KEYS = ["row", "parent", "lane", "pass", "layer", "start_ns", "duration_ns", "exclusive_ns", "elements", "flops", "bytes"]
NUMBERS = {"device", "stream", "tid", "threads", "shared_mem", "registers", "spill_bytes", *KEYS} | {
    f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"
}


def expected_rows(profile):
    """The rows that a table of all spans must have."""
    numbers = {}
    for device, stream, one in profile.passes():
        numbers.setdefault((device, stream, one["serial"]), one["phase"])
    for (device, stream), table in profile.tables.items():
        indices = [cells[0] for cells in table["spans"]["rows"]]
        rows = (entry for entry in profile.spans() if entry[:2] == (device, stream))
        for (_, _, row, span), index in zip(rows, indices, strict=True):
            known = profile.known(index)
            host, launch, route = known.get("host") or {}, known.get("device") or {}, known.get("transfer") or {}
            lanes = profile.json["lanes"]
            lane = lanes[span["lane"]] if device is None and span["lane"] < len(lanes) else {}
            grid, block = launch.get("grid") or [None] * 3, launch.get("block") or [None] * 3
            yield {
                "device": device,
                "stream": stream,
                "row": row,
                "track": lane.get("name") if device is None else profile.json["devices"][device]["streams"][stream]["name"],
                "tid": lane.get("tid"),
                "phase": numbers.get((device, stream, span["pass"])),
                "shape": host.get("shape") or launch.get("shape") or None,
                "threads": host.get("threads"),
                **{f"grid_{axis}": n for axis, n in zip("xyz", grid)},
                **{f"block_{axis}": n for axis, n in zip("xyz", block)},
                "shared_mem": launch.get("shared_mem"),
                "ptx": f"{launch['ptx_hash']:016x}" if launch.get("ptx_hash") else None,
                "registers": launch.get("registers"),
                "spill_bytes": launch.get("spill_bytes"),
                **{key: route.get(key) for key in ("src", "dst", "direction")},
                **{key: span[key] for key in ("parent", "lane", "pass", "layer", "kind", "name", "source")},
                **{key: span[key] for key in ("start_ns", "duration_ns", "exclusive_ns", "elements", "flops", "bytes")},
            }


def lines(path):
    # Without `newline=""` Python would change the line breaks inside of names.
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file, strict=True)


def text(cell):
    """A text without the mark that keeps spreadsheets from taking it for a formula."""
    if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
        sys.exit(f"a spreadsheet takes {cell!r} for a formula")
    return cell[1:] if cell[:1] == "'" else cell


def of_csv(path):
    for line in lines(path):
        # What is absent and a text without letters are both empty cells for Python.
        yield {key: int(cell) if key in NUMBERS and cell else (text(cell) or None) for key, cell in line.items()}


def sums(rows, keys, values):
    found = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        found[key] = [a + b for a, b in zip(found.get(key, [0] * len(values)), (row[name] or 0 for name in values))]
    return found


def main(profile_path, spans_csv, passes_csv, totals_csv, parquet):
    profile = Profile(profile_path)
    expected = list(expected_rows(profile))
    found = list(of_csv(spans_csv))
    plain = [{key: value or None if key in ("name", "track", "src", "dst") else value for key, value in row.items()} for row in expected]
    for nth, (a, b) in enumerate(zip(found, plain)):
        same(f"line {nth + 2} of the CSV", a, b)
    same("lines of the CSV", len(found), len(expected))

    passes = [tuple(row[key] for key in ("device", "stream", "pass", "wall_ns", "position")) for row in lines(passes_csv)]
    cell = lambda value: "" if value is None else str(value)
    same("passes", passes, [tuple(map(cell, (d, s, p["serial"], p["wall_ns"], profile.position(p)))) for d, s, p in profile.passes()])

    totals = [(row["phase"], row["kind"], text(row["name"]), row["count"], row["total_ns"], row["exclusive_ns"]) for row in lines(totals_csv)]
    told = [total for table in profile.tables.values() for total in table["totals"]]
    keys = ("phase", "kind", "name", "count", "total_ns", "exclusive_ns")
    same("totals", totals, [tuple(cell(total[key] or None if key == "count" else total[key]) for key in keys) for total in told])

    table = duckdb.read_parquet(parquet)
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    for nth, (a, b) in enumerate(zip(rows, expected)):
        same(f"row {nth} of the Parquet file", a, b)
    same("rows of the Parquet file", len(rows), len(expected))
    facts = dict(
        (bytes(key).decode(), bytes(value).decode())
        for key, value in duckdb.execute("select key, value from parquet_kv_metadata(?)", [parquet]).fetchall()
    )
    same("the schema's version", facts["brickscope.profile.schema_version"], str(profile.json["schema_version"]))
    same("the table's version", facts["brickscope.table_version"], "1")
    same("brickscope's version", facts["brickscope.profile.version"], profile.json["brickscope_version"])

    # As somebody would ask: against the profile's own totals, to the nanosecond.
    if profile.is_whole():
        query = "select phase, kind, name, count(*), sum(duration_ns)::ubigint, sum(exclusive_ns)::ubigint from table where kind <> 'layer' group by all"
        asked = {row[:3]: list(row[3:]) for row in duckdb.sql(query.replace("table", "read_parquet($path)"), params={"path": parquet}).fetchall()}
        same("sums by DuckDB", asked, sums(told, keys[:3], keys[3:]))
    print(f"{len(rows)} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
