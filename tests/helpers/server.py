"""A web server on this machine, for tests of downloads."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Serves what ``replies`` holds for a path and counts requests."""

    def __init__(self):
        super().__init__(('127.0.0.1', 0), Handler)
        self.replies = {}
        self.requests = []
        self.root = f'http://127.0.0.1:{self.server_port}'
        self.url = f'{self.root}/mirror'

    def serve(self, path: str, body: bytes, length: int | None = None, first=None, then=None):
        """Answer with a body; a length above the body's makes it seem cut off."""
        self.replies[path] = (body, len(body) if length is None else length, first, then)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path not in self.server.replies:
            self.send_error(404)
            return
        body, length, first, then = self.server.replies[self.path]
        if first:
            first()
        self.send_response(200)
        self.send_header('Content-Length', str(length))
        self.end_headers()
        self.wfile.write(body)
        if then:
            then()

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]
