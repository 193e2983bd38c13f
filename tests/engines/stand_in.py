"""A server of a language model without a model: OpenAI's /v1/completions as a stream, whose tokens leave after fixed times. It
notes, by its own clock, when each request came and when it began to send each token.

A request came when its connection was accepted, as that is when its client has one; on a connection that had one before, when
its first line was read.

It has HTTP/1.1 with connections that stay open, if the client wants.
"""

import http.server
import itertools
import json
import socket
import sys
import threading
import time
import typing


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Noted(typing.NamedTuple):
    came_ns: int
    tokens_ns: list
    # Whether it was the first one of its connection.
    opened: bool


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Each token leaves at once.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.accepted_ns = self.server.accepted_ns.of_thread

    def parse_request(self):
        # It is called once the first line is there.
        self.opened = self.accepted_ns is not None
        self.came_ns = self.accepted_ns if self.opened else now()
        self.accepted_ns = None
        return super().parse_request()

    def whole(self, said, status=200):
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        known = {"/v1/models": {"object": "list", "data": [{"id": "stand-in", "object": "model"}]}, "/health": {"status": "ok"}}
        self.whole(known.get(self.path, {}), 200 if self.path in known else 404)

    def do_POST(self):
        server = self.server
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions" or not asked.get("stream"):
            return self.whole({"error": {"message": "only /v1/completions, as a stream"}}, 404)
        name = f"cmpl-{next(server.names)}"
        tokens = asked["max_tokens"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        times = []
        for nth in range(tokens):
            until = self.came_ns + server.first_ns + nth * server.token_ns
            time.sleep(max(0, until - now()) / 1e9)
            choice = {"index": 0, "text": " token", "finish_reason": "length" if nth == tokens - 1 else None}
            event = self.event({"id": name, "object": "text_completion", "choices": [choice]})
            times.append(now())
            self.wfile.write(event)
        usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": tokens}
        usage["total_tokens"] = sum(usage.values())
        server.noted[name] = Noted(self.came_ns, times, self.opened)
        self.wfile.write(self.event({"id": name, "choices": [], "usage": usage}) + self.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def event(self, said):
        return self.chunk(b"data: " + json.dumps(said).encode() + b"\n\n")

    @staticmethod
    def chunk(data):
        return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Server:
    """Threads that each wait for a connection. They are there before: to start one takes longer than what is measured."""

    def __init__(self, first_ns, token_ns, threads=32):
        # A thread that is woken has the interpreter soon.
        sys.setswitchinterval(1e-4)
        self.first_ns, self.token_ns = first_ns, token_ns
        self.names = itertools.count(1)
        # By the name of an answer.
        self.noted = {}
        self.accepted_ns = threading.local()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        for _ in range(threads):
            threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, address = self.socket.accept()
            self.accepted_ns.of_thread = now()
            with connection:
                try:
                    Handler(connection, address, self)
                except OSError:
                    # Clients may go away.
                    pass
