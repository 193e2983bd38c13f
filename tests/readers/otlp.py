"""Reads OTLP's JSON by the published protocol buffers, no unknown field allowed, and holds it to the profile.

    otlp.py PROFILE.json METRICS.json…
"""

import collections
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE


def attributes(point):
    return {attribute.key: attribute.value.string_value for attribute in point.attributes}


def main(profile_path, *paths):
    with open(profile_path, encoding="utf-8") as file:
        profile = json.load(file)
    n_points = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        request = json_format.Parse(text, ExportMetricsServiceRequest())
        [resource] = request.resource_metrics
        [scope] = resource.scope_metrics
        found = collections.Counter()
        names = set()
        for metric in scope.metrics:
            if metric.name in names:
                sys.exit(f"{path}: {metric.name} is there twice")
            names.add(metric.name)
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            if kind in ("sum", "histogram") and data.aggregation_temporality != AGGREGATION_TEMPORALITY_CUMULATIVE:
                sys.exit(f"{path}: {metric.name} is not cumulative")
            for point in data.data_points:
                n_points += 1
                if point.time_unix_nano < point.start_time_unix_nano or not point.time_unix_nano:
                    sys.exit(f"{path}: {metric.name} ends before it begins")
                if kind == "histogram" and point.explicit_bounds:
                    if sum(point.bucket_counts) != point.count or len(point.bucket_counts) != len(point.explicit_bounds) + 1:
                        sys.exit(f"{path}: the buckets of {metric.name} are not its count")
                labels = attributes(point)
                if "device" not in labels and metric.name in ("brickscope.brick.exclusive", "brickscope.unattributed", "brickscope.wall"):
                    found[metric.name, labels["phase"]] += round(point.as_double * 1e9)
        for phase in profile["phases"]:
            bricks = found["brickscope.brick.exclusive", phase["phase"]]
            unattributed = found["brickscope.unattributed", phase["phase"]]
            wall = found["brickscope.wall", phase["phase"]]
            if (bricks + unattributed, wall) != (phase["wall_ns"], phase["wall_ns"]):
                sys.exit(f"{path}: {phase['phase']}: {bricks} + {unattributed} ns, and {wall} ns of wall")
    print(f"{n_points} points")


if __name__ == "__main__":
    main(*sys.argv[1:])
