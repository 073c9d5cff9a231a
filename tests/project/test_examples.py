"""The examples of actors, as demonstrations and as servers that are stopped by a signal."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from project_paths import EXAMPLES

DEADLINE_S = 300.0  # for a process that hangs
LINES_MAX = 170  # short enough to read from top to bottom
# The examples of actors are tested here, the others in test_examples_groups.py.
ACTORS = ("embed_actors.py", "embed_threads.py")
GROUPS = ("fastapi_service.py", "rebalance_picture.py", "resize_images.py", "shard_queue.py", "sharded_scheduler.py")
TESTS = ("test_aiokafka_service.py", "test_confluent_rebalance.py")
each_example = pytest.mark.parametrize("name", (*ACTORS, *GROUPS, *TESTS))


def run_example(name: str) -> list[str]:
    """Run an example's demonstration; return the lines that it prints after its address."""
    process = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    first, *lines = process.stdout.splitlines()
    assert first.startswith("listening on 127.0.0.1:")
    return lines


def test_each_example_has_a_test() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted((*ACTORS, *GROUPS, *TESTS))


@each_example
def test_example_has_at_most_170_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= LINES_MAX


def test_embed_actors_example_prints_quotas() -> None:
    """Requests of two connections count, a refusal and a bug affect no other request, the timer refills a quota."""
    twice, refused, bug, after, empty, filled, restarts, end = run_example("embed_actors.py")
    left = [int(number) for number in re.findall(r"yes, (\d+) left", twice)]
    assert len(left) == 2
    assert 6 <= min(left) <= max(left) <= 8, "the timer may refill between the two requests"
    assert re.fullmatch(r"ana 50: no: ([6-9]|10) left", refused)
    assert bug.startswith("ana 0: sorry: ZeroDivisionError")
    assert re.fullmatch(r"ana 1: yes, [5-9] left", after)
    assert empty == "bob 10: yes, 0 left"
    assert filled.startswith("bob 3, a little later: yes, ")
    assert restarts == "actors restarted after a bug: 1"
    assert end == "stopped"


def test_embed_threads_example_prints_seats() -> None:
    """One of twenty requests gets the seat; a bug affects one request; another show has the same seat number."""
    race, bug, taken, free, other_show, end = run_example("embed_threads.py")
    assert race == "20 requests for seat 12: 1 succeeded, the others got: 409 seat 12 is taken"
    assert bug.startswith("/hamlet/1000?ana: 500 sorry: IndexError")
    assert taken == "/hamlet/12?ana: 409 seat 12 is taken"
    assert free == "/hamlet/13?ana: 200 seat 13 is yours, ana"
    assert other_show == "/faust/12?ana: 200 seat 12 is yours, ana"
    assert end == "stopped"


def ask_over_tcp(port: int) -> str:
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(b"ana 3\nnonsense\n")
        with connection.makefile() as answers:
            return answers.readline() + answers.readline()


def ask_over_http(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    answers = []
    for path in ("/hamlet/1?ana", "/hamlet"):
        connection.request("PUT", path)
        response = connection.getresponse()
        answers.append(f"{response.status} {response.read().decode()}")
    connection.close()
    return "".join(answers)


TCP_ANSWERS = "yes, 7 left\nno: not enough values to unpack (expected 2, got 1)\n"
HTTP_ANSWERS = "200 seat 1 is yours, ana\n404 expected /SHOW/SEAT?NAME\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("name", "ask", "answers"),
    [("embed_actors.py", ask_over_tcp, TCP_ANSWERS), ("embed_threads.py", ask_over_http, HTTP_ANSWERS)],
)
def test_example_as_a_server_answers_until_a_signal(
    name: str, ask: Callable[[int], str], answers: str, number: signal.Signals
) -> None:
    command = [sys.executable, str(EXAMPLES / name), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert ask(int(line.rpartition(":")[2])) == answers
            server.send_signal(number)
            rest, errors = server.communicate(timeout=DEADLINE_S)
        finally:
            server.kill()
    assert (server.returncode, rest, errors) == (0, "stopped\n", "")
