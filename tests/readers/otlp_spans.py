"""Reads requests as OTLP's traces by the published protocol buffers, no unknown field allowed, and holds them to the
profile and to `brickscope requests --json`.

    otlp_spans.py PROFILE.json REQUESTS.json TRACES.json
"""

import base64
import collections
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from expected import same


def value_of(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(of) for of in value.array_value.values]
    return getattr(value, kind)


def attributes(span):
    found = {of.key: value_of(of.value) for of in span.attributes}
    same("attributes of a name", len(found), len(span.attributes))
    return found


def parsed(path):
    """OTLP's JSON has ids in hexadecimal, where JSON of protocol buffers has base64."""
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    for of in told["resourceSpans"]:
        for scope in of["scopeSpans"]:
            for span in scope["spans"]:
                for named in [span, *span.get("links", [])]:
                    for key in {"traceId", "spanId", "parentSpanId"} & set(named):
                        named[key] = base64.b64encode(bytes.fromhex(named[key])).decode()
    return json_format.ParseDict(told, ExportTraceServiceRequest())


def traces(request):
    """The root and the other spans of each trace, in order."""
    found = collections.OrderedDict()
    for of in request.resource_spans:
        for span in (span for scope in of.scope_spans for span in scope.spans):
            if len(span.trace_id) != 16 or len(span.span_id) != 8 or not any(span.trace_id) or not any(span.span_id):
                sys.exit(f"{span.name}: no id")
            found.setdefault(span.trace_id, []).append(span)
    for spans in found.values():
        root, *others = spans
        same("ids of a trace", len({span.span_id for span in spans}), len(spans))
        same("the parent of a request", root.parent_span_id, b"")
        same("parents", {span.parent_span_id for span in others} - {root.span_id}, set())
    return [(spans[0], spans[1:]) for spans in found.values()]


def check(profile, told, request):
    """How many spans there are; each request that ended has the times, counts and pieces that it should have."""
    anchor = next(of for of in profile["clock"]["anchors"] if "unix_ns" in of)
    at = lambda ns: ns - anchor["at_ns"] + anchor["unix_ns"]
    parts = profile.get("parts", [])
    ended = [number for number, of in enumerate(profile["requests"]) if "ended_ns" in of]
    found = traces(request)
    same("traces", len(found), len(ended))
    n_spans = 0
    roots = {(root.trace_id, root.span_id): number for number, (root, _) in zip(ended, found)}
    for number, (root, others) in zip(ended, found):
        of, intervals = profile["requests"][number], told["requests"][number]["intervals"]
        where, known = of["id"], attributes(root)
        n_spans += 1 + len(others)
        same(f"{where}: its name", known.get("gen_ai.response.id", known.get("brickscope.request")), of["id"])
        same(f"{where}: its times", (root.start_time_unix_nano, root.end_time_unix_nano), (at(of["arrived_ns"]), at(of["ended_ns"])))
        same(f"{where}: its kind", root.kind, Span.SPAN_KIND_SERVER)
        is_error = root.status.code == Status.STATUS_CODE_ERROR
        same(f"{where}: its end", (known.get("brickscope.ending"), is_error), (of.get("ending"), of.get("ending") == "error"))
        reasons = [of["ending"]] if of.get("ending") in ("stop", "length") else None
        same(f"{where}: why it ended", known.get("gen_ai.response.finish_reasons"), reasons)
        first = [i["to_ns"] - i["from_ns"] for i in intervals if i["until"] == "1"]
        seconds = known.get("gen_ai.response.time_to_first_chunk")
        same(f"{where}: its first token", [] if seconds is None else [round(seconds * 1e9)], first)
        for key, field in [("gen_ai.usage.input_tokens", "prompt_tokens"), ("gen_ai.usage.output_tokens", "output_tokens")]:
            same(f"{where}: {key}", known.get(key), of.get(field))
        own = [part for part in parts if part["request"] == number]
        cached = min(own, key=lambda part: part["pass"]) if own else None
        is_known = cached is not None and (cached.get("cached") or not cached["position"])
        same(f"{where}: cached", known.get("gen_ai.usage.cache_read.input_tokens"), cached.get("cached", 0) if is_known else None)
        # One after the other, without a gap; together with their pieces they are the request.
        end, sums = root.start_time_unix_nano, collections.Counter()
        for span in others:
            same(f"{where}: {span.name} begins", span.start_time_unix_nano, end)
            end, length = span.end_time_unix_nano, span.end_time_unix_nano - span.start_time_unix_nano
            pieces = {key: ns for key, ns in attributes(span).items() if key.startswith("brickscope.") and key.endswith("_ns")}
            if span.name in ("before the engine", "queue"):
                pieces = {"brickscope.receiving_ns" if span.name != "queue" else "brickscope.queue_ns": length}
            same(f"{where}: pieces of {span.name}", sum(pieces.values()), length)
            sums.update(pieces)
            tokens = [i for i in intervals if i["until"] not in ("1", "end")]
            for link in span.links:
                # To another request, by its name.
                other = roots[link.trace_id, link.span_id]
                called = {of.key: value_of(of.value) for of in link.attributes}
                name = called.get("gen_ai.response.id", called.get("brickscope.request"))
                same(f"{where}: a neighbour", (name, other != number), (profile["requests"][other]["id"], True))
            if span.name == "further tokens":
                same(f"{where}: tokens", attributes(span)["brickscope.tokens"], len(tokens))
        same(f"{where}: where its spans end", end, root.end_time_unix_nano)
        expected = collections.Counter()
        for interval in intervals:
            expected.update({f"brickscope.{piece.replace('-', '_')}_ns": ns for piece, ns in interval["pieces"].items()})
        same(f"{where}: its pieces", {key: ns for key, ns in sums.items() if ns}, {key: ns for key, ns in expected.items() if ns})
    return n_spans


def main(profile_path, told_path, traces_path):
    profile, told = (json.load(open(path, encoding="utf-8")) for path in (profile_path, told_path))
    print(f"{check(profile, told, parsed(traces_path))} spans of {len(profile['requests'])} requests")


if __name__ == "__main__":
    main(*sys.argv[1:])
