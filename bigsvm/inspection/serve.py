"""Serves the report of running trainings to a browser on this machine."""

import secrets
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bigsvm.inspection.report import RunReport, page, report_data
from bigsvm.terminal.signals import defer_interrupt

LIVE = "Live: updated while the runs train"
POLL_SECONDS = 1.0


def serve(runs: Sequence[RunReport]) -> None:
    """Serve the page, and score new snapshots, until Ctrl-C.

    Only this machine can connect, and only a request with the token of the address is answered:
    neither other users nor web pages in the same browser know it.
    """
    token = secrets.token_urlsafe(16)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == f"/{token}/":
                self._answer("text/html; charset=utf-8", page(report_data(runs, LIVE, live=True)))
            elif self.path == f"/{token}/data.json":
                self._answer("application/json", report_data(runs, LIVE, live=True))
            else:
                self.send_error(404)

        def _answer(self, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(200)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(content)),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "X-Content-Type-Options": "nosniff",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: the page asks every second or two."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Report an error, unless the browser went away in the middle of an answer."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)  # type: ignore[arg-type]

    with Server(("127.0.0.1", 0), Handler) as server, defer_interrupt() as interrupted:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{token}/"
        print(f"serving {address} (Ctrl-C ends it, and writes the report)", flush=True)
        while not interrupted():
            for run in runs:
                run.evaluate()
            time.sleep(POLL_SECONDS)
        server.shutdown()
