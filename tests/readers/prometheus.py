"""Reads Prometheus' text and OpenMetrics by their client library's parsers, and holds them to the profile.

    prometheus.py PROFILE.json METRICS.prom…
"""

import collections
import json
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus


def nanoseconds(seconds):
    # The text has every digit; the parser makes a binary fraction of it.
    return round(seconds * 1e9)


def alike(what, found, expected):
    # 2^53 ns are 104 days: beyond that the parser's numbers are not whole nanoseconds.
    if abs(found - expected) > expected / 2**52:
        sys.exit(f"{what}: {found}, and not {expected}")


def main(profile_path, *paths):
    with open(profile_path, encoding="utf-8") as file:
        profile = json.load(file)
    n_samples = 0
    for path in paths:
        # Line breaks of other kinds are parts of names.
        with open(path, encoding="utf-8", newline="\n") as file:
            text = file.read()
        families = list((open_metrics if text.endswith("# EOF\n") else prometheus)(text))
        names = [family.name for family in families]
        if len(set(names)) != len(names):
            sys.exit(f"{path}: a family is there twice: {sorted(names)}")
        values = collections.defaultdict(dict)
        for family in families:
            for sample in family.samples:
                n_samples += 1
                labels = tuple(sorted(sample.labels.items()))
                if labels in values[sample.name]:
                    sys.exit(f"{path}: {sample} is there twice")
                values[sample.name][labels] = sample.value
        tables = [("brickscope_", (), profile)]
        for d, device in enumerate(profile.get("devices", [])):
            for stream in device["streams"]:
                labels = (("device", str(d)), ("stream", stream["name"]))
                tables.append(("brickscope_device_", labels, stream))
        imported = profile.get("imported") or {}
        # A repetition of llama-bench is many passes, and isn't counted as one.
        are_passes = imported.get("format") != "llama-bench"
        for prefix, labels, table in tables:
            check(path, prefix, labels, table, values, are_passes)
        histograms(path, families)
    print(f"{n_samples} samples")


def check(path, prefix, labels, table, values, are_passes):
    def value(name, *more):
        return values[prefix + name][tuple(sorted(labels + more))]

    for phase in table["phases"]:
        label = ("phase", phase["phase"])
        for name, field in [("wall", "wall_ns"), ("unattributed", "unattributed_ns")]:
            alike(f"{path}: {name}", nanoseconds(value(f"{name}_seconds_total", label)), phase[field])
        if are_passes:
            alike(f"{path}: passes", value("passes_total", label), phase["passes"])
        elif values.get(prefix + "passes_total"):
            sys.exit(f"{path}: repetitions are told as passes")
        if phase["tokens"]:
            alike(f"{path}: tokens", value("tokens_total", label), phase["tokens"])
    sums = collections.Counter()
    for total in table["totals"]:
        key = (total["phase"] or "outside", total["kind"], total["name"], total["source"])
        for field in ("count", "total_ns", "exclusive_ns", "total_flops", "total_bytes"):
            sums[(*key, field)] += total[field] or 0
        sums[(*key, "category")] = (total["category"] or "").replace("Ffn", "FFN")
    for (phase, kind, name, source, field), expected in sums.items():
        more = [("phase", phase), (kind, name), ("source", source)]
        if kind == "brick":
            more.append(("category", sums[(phase, kind, name, source, "category")]))
        metric = {
            ("brick", "total_ns"): "brick_inclusive_seconds_total",
            ("brick", "exclusive_ns"): "brick_exclusive_seconds_total",
            ("brick", "count"): "brick_spans_total",
            ("kernel", "total_ns"): "kernel_seconds_total",
            ("kernel", "count"): "kernel_launches_total",
        }.get((kind, field))
        stated = {"total_flops": "flops_total", "total_bytes": "moved_bytes_total"}.get(field)
        if metric:
            found = value(metric, *more)
            alike(f"{path}: {metric} of {name}", nanoseconds(found) if field.endswith("_ns") else found, expected)
        elif stated:
            found = values[f"{prefix}{kind}_{stated}"].get(tuple(sorted(labels + tuple(more))), 0)
            alike(f"{path}: {stated} of {name}", found, expected)


def histograms(path, families):
    for family in families:
        if family.type != "histogram":
            continue
        last, counts = {}, {}
        for sample in family.samples:
            labels = {key: label for key, label in sample.labels.items() if key != "le"}
            key = tuple(sorted(labels.items()))
            if sample.name.endswith("_bucket"):
                if sample.value < last.get(key, 0):
                    sys.exit(f"{path}: {sample} is less than the bucket before it")
                last[key] = sample.value
            elif sample.name.endswith("_count"):
                counts[key] = sample.value
        if last != counts:
            sys.exit(f"{path}: {family.name}: the last buckets are not the counts")


if __name__ == "__main__":
    main(*sys.argv[1:])
