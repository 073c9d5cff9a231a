"""Seats over HTTP: a threaded WSGI service that keeps its state in actors, one for each show.

    python examples/embed_threads.py       # a short demonstration
    python examples/embed_threads.py 8080  # serves until Ctrl-C; try it with:
                                           #   curl -X PUT 'http://127.0.0.1:8080/hamlet/12?ana'

The server has a thread for each request, which asks an actor and waits at most two seconds for its answer. Requests for
one show are handled one after the other in its actor, so no seat is sold twice, without a lock. The standard library's
server can be replaced by any other WSGI server.
"""

import http.client
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from callboard.actors import DEFERRED, Actor, ActorDeadError, ActorRef, ChildFailed, MailboxFull, Supervision, Timeout
from callboard.runtime import System

SEATS = 100
ANSWER_TIMEOUT_S = 2.0


class Book(NamedTuple):
    show: str
    seat: int
    name: str


class Refused(Exception):
    """The request is refused, and the visitor gets the message. This is not a bug."""


class Show(Actor):
    """The seats of one show."""

    handlers = {Book: "book"}
    supervision = Supervision(domain_errors=(Refused,))
    high_water = 1000  # with more requests in the mailbox, new ones are refused at once

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names  # an instance after a bug gets the same list; a real service would use a database

    def book(self, message: Book) -> str:
        taken_by = self.names[message.seat - 1]  # the bug: an IndexError for seat 1000
        if taken_by:
            raise Refused(f"seat {message.seat} is taken")
        self.names[message.seat - 1] = message.name
        return f"seat {message.seat} is yours, {message.name}"


class BoxOffice(Actor):
    """Finds or creates the actor of a show and forwards the request to it, without waiting for the answer."""

    handlers = {Book: "book", ChildFailed: "forget"}

    def __init__(self) -> None:
        super().__init__()
        self.shows: dict[str, ActorRef] = {}

    def book(self, message: Book) -> Any:
        if message.show not in self.shows:
            self.shows[message.show] = self.spawn(Show, [""] * SEATS)
        assert self.reply_to is not None, "requests have a reply slot"
        self.shows[message.show].post(message, self.reply_to)  # the show answers the request directly
        return DEFERRED

    def forget(self, message: ChildFailed) -> None:
        """An actor failed after too many bugs: the next request for its show creates a new one."""
        self.shows = {show: ref for show, ref in self.shows.items() if ref != message.child}


def application(office: ActorRef, environ: dict[str, Any], start_response: Callable[..., object]) -> list[bytes]:
    """The WSGI application, once ``office`` is bound. Runs on a server thread; actors run on the system's thread."""
    match environ["PATH_INFO"].split("/"), environ["QUERY_STRING"]:
        case ["", show, seat], name if seat.isdecimal() and name:
            status, text = book(office, Book(show, int(seat), name))
        case _:
            status, text = HTTPStatus.NOT_FOUND, "expected /SHOW/SEAT?NAME"
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]


def book(office: ActorRef, message: Book) -> tuple[HTTPStatus, str]:
    try:
        return HTTPStatus.OK, office.ask(message, timeout=ANSWER_TIMEOUT_S)
    except Refused as error:
        return HTTPStatus.CONFLICT, str(error)
    except (Timeout, MailboxFull, ActorDeadError):  # the last one also from an actor that has failed
        return HTTPStatus.SERVICE_UNAVAILABLE, "please try again"
    except Exception as error:  # a bug: a new instance of the actor continues
        return HTTPStatus.INTERNAL_SERVER_ERROR, f"sorry: {error!r}"


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request. ``server_close`` waits until all requests are answered."""


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def put(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", path)
    response = connection.getresponse()
    answer = f"{response.status} {response.read().decode().strip()}"
    connection.close()
    return answer


def demonstrate(port: int) -> None:
    with ThreadPoolExecutor(8) as visitors:
        answers = list(visitors.map(lambda number: put(port, f"/hamlet/12?visitor{number}"), range(20)))
    success_count = sum(answer.startswith("200") for answer in answers)
    print(f"20 requests for seat 12: {success_count} succeeded, the others got:", max(answers))
    for path in ("/hamlet/1000?ana", "/hamlet/12?ana", "/hamlet/13?ana", "/faust/12?ana"):
        print(f"{path}: {put(port, path)}")


def serve(office: ActorRef, port: int | None) -> None:
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    server = make_server("127.0.0.1", port or 0, partial(application, office), Server, QuietHandler)
    threading.Thread(target=server.serve_forever).start()
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    try:
        if port is None:
            demonstrate(server.server_port)
        else:
            stopping.wait()
    finally:
        server.shutdown()  # accepts no new requests
        server.server_close()  # waits for the pending ones


def main() -> None:
    with System.on_threads() as system:  # the end of the block stops all actors, then their thread
        serve(system.spawn(BoxOffice), int(sys.argv[1]) if len(sys.argv) > 1 else None)
    print("stopped")


if __name__ == "__main__":
    main()
