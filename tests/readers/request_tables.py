"""Reads the requests of a run as Parquet by DuckDB, and holds them to its profile and to `brickscope requests --json`.

    request_tables.py PROFILE.json REQUESTS.json REQUESTS.parquet INTERVALS.parquet
"""

import json
import sys

import duckdb

from expected import same

PIECES = ["receiving", "queue", "own-alone", "own-beside-prompts", "own-beside-decode", "own-beside-both"]
PIECES += ["other-prompts", "other-decode", "other-both", "between", "unattributed"]
PLAIN = ["received_ns", "admitted_ns", "ended_ns", "ending", "error", "prompt_tokens", "output_tokens"]


def column(piece):
    return piece.replace("-", "_") + "_ns"


def rows_of(path):
    table = duckdb.read_parquet(path)
    return [dict(zip(table.columns, row, strict=True)) for row in table.order("request").fetchall()]


class Known:
    """Of which pieces of a request anybody could know anything."""

    def __init__(self, profile):
        self.parts = profile.get("parts", [])
        self.tied = {part["request"] for part in self.parts}
        missing = (profile["dropped"].get(what, 0) for what in ("passes", "abandoned_passes", "open_passes"))
        self.are_passes_missing = any(missing) or not profile["passes"]

    def piece(self, name, number, request):
        if name in ("receiving", "queue"):
            return {"receiving": "received_ns", "queue": "admitted_ns"}[name] in request
        if name.startswith("own"):
            return number in self.tied
        if name.startswith("other"):
            return bool(self.parts)
        return not self.are_passes_missing if name == "between" else True

    def cached(self, number):
        first = min((part for part in self.parts if part["request"] == number), key=lambda part: part["pass"], default=None)
        if first is None or (first["position"] and not first.get("cached")):
            return None
        return first.get("cached", 0)


def main(profile_path, told_path, requests_path, intervals_path):
    profile, told = (json.load(open(path, encoding="utf-8")) for path in (profile_path, told_path))
    known = Known(profile)
    rows = rows_of(requests_path)
    same("rows of requests", len(rows), len(profile["requests"]))
    n_intervals = 0
    of_intervals = duckdb.read_parquet(intervals_path)
    intervals = [dict(zip(of_intervals.columns, row, strict=True)) for row in of_intervals.order("request, token is null, token").fetchall()]
    by_request = {}
    for interval in intervals:
        by_request.setdefault(interval["request"], []).append(interval)
    for number, (row, request, of) in enumerate(zip(rows, profile["requests"], told["requests"], strict=True)):
        where = f"request {number}"
        tokens = request.get("tokens_ns", [])
        same(f"{where}: its id", (row["request"], row["id"], row["arrived_ns"]), (number, of["id"], of["arrived_ns"]))
        same(f"{where}: what was told", {key: row[key] for key in PLAIN}, {key: request.get(key) for key in PLAIN})
        ends = (row["timed_tokens"], row["first_token_ns"], row["last_token_ns"])
        same(f"{where}: tokens", ends, (len(tokens), *((tokens[0], tokens[-1]) if tokens else (None, None))))
        same(f"{where}: cached", row["cached_tokens"], known.cached(number))
        first = next((i["to_ns"] - i["from_ns"] for i in of["intervals"] if i["until"] == "1"), None)
        whole = request["ended_ns"] - request["arrived_ns"] if "ended_ns" in request else None
        same(f"{where}: its times", (row["to_first_token_ns"], row["whole_ns"]), (first, whole))
        further = max(request.get("output_tokens", len(tokens)), len(tokens)) - 1
        mean = (tokens[-1] - tokens[0]) // further if len(tokens) > 1 else None
        same(f"{where}: the mean of its tokens", row["mean_token_ns"], mean)
        found = by_request.get(number, [])
        same(f"{where}: intervals", len(found), len(of["intervals"]))
        n_intervals += len(found)
        for interval, theirs in zip(found, of["intervals"], strict=True):
            until = "end" if interval["token"] is None else str(interval["token"])
            word = {"end": "end", "1": "first token"}.get(until, "token")
            times = (until, interval["until"], interval["from_ns"], interval["to_ns"], interval["duration_ns"])
            mine = (theirs["until"], word, theirs["from_ns"], theirs["to_ns"], theirs["to_ns"] - theirs["from_ns"])
            same(f"{where}: an interval", times, mine)
            for piece in PIECES:
                expected = theirs["pieces"].get(piece, 0) if known.piece(piece, number, request) else None
                same(f"{where} to {until}: {piece}", interval[column(piece)], expected)
        for piece in PIECES:
            of_all = sum(i["pieces"].get(piece, 0) for i in of["intervals"])
            expected = of_all if of["intervals"] and known.piece(piece, number, request) else None
            same(f"{where}: {piece}", row[column(piece)], expected)
    same("rows of intervals", len(intervals), n_intervals)
    # As somebody would ask.
    sums = ", ".join(f"coalesce(sum({column(piece)}), 0)::ubigint" for piece in PIECES)
    whole = duckdb.sql(f"select sum(duration_ns)::ubigint, {sums} from read_parquet($path)", params={"path": intervals_path}).fetchall()[0]
    same("the sum of the pieces", sum(whole[1:]), whole[0])
    for path in (requests_path, intervals_path):
        facts = duckdb.execute("select key, value from parquet_kv_metadata(?)", [path]).fetchall()
        facts = {bytes(key).decode(): bytes(value).decode() for key, value in facts}
        same("the table's version", facts["brickscope.table_version"], "1")
    print(f"{len(rows)} requests and {len(intervals)} intervals as Parquet")


if __name__ == "__main__":
    main(*sys.argv[1:])
