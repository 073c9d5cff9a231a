"""moto's server, one request after the other: ``python moto_program.py HOST PORT``.

Its threads look whether an object exists and then write it, so of two conditional writes both may succeed. S3 promises
that one does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


def main(host: str, port: str) -> None:
    os.environ["MOTO_PORT"] = port
    serve, lock = DomainDispatcherApplication(create_backend_app), Lock()

    def serve_one(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with lock:
            response: Iterable[bytes] = serve(environ, start_response)
            return response

    run_simple(host, int(port), serve_one, threaded=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
