"""Listeners: their names, forms and rules are Kafka's; a wrong value is refused with what was expected."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from callboard.runtime.common.errors import StartError
from callboard.runtime.settings.address import Address
from callboard.runtime.settings.listeners import Listener, parse_inter_broker_listener, parse_listeners
from callboard.runtime.settings.load import load

MAP = "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT"
INTERNAL = Listener("INTERNAL", listen=Address("10.0.0.5", 9092))
EXTERNAL = Listener("EXTERNAL", listen=Address("10.0.0.5", 9094))


def test_address_without_name_is_that_of_plaintext() -> None:
    assert parse_listeners(["127.0.0.1:9092"]) == (Listener(),)
    assert parse_listeners(["PLAINTEXT://127.0.0.1:9092"]) == (Listener(),)
    advertised = Listener(advertised=Address("kafka.example.com", 9092))
    assert parse_listeners(["127.0.0.1:9092"], ["kafka.example.com:9092"]) == (advertised,)


@pytest.mark.parametrize(
    "texts",
    [
        ["INTERNAL://10.0.0.5:9092,EXTERNAL://10.0.0.5:9094"],
        ["INTERNAL://10.0.0.5:9092", "EXTERNAL://10.0.0.5:9094"],
        ["internal://10.0.0.5:9092, External://10.0.0.5:9094,"],
        ["INTERNAL://10.0.0.5:9092,", "EXTERNAL://10.0.0.5:9094"],
    ],
)
def test_listeners_may_be_repeated_or_separated_by_commas(texts: list[str]) -> None:
    assert parse_listeners(texts, None, MAP) == (INTERNAL, EXTERNAL)


def test_one_port_may_be_that_of_ipv4_and_of_ipv6_and_port_zero_that_of_all() -> None:
    assert len(parse_listeners(["INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092"], None, MAP)) == 2
    assert len(parse_listeners(["INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"], None, MAP)) == 2


def test_listener_that_is_not_among_the_advertised_ones_is_not_advertised() -> None:
    listeners = parse_listeners(
        ["INTERNAL://10.0.0.5:9092,EXTERNAL://10.0.0.5:9094"], ["EXTERNAL://kafka.example.com:9094"], MAP
    )
    advertised = EXTERNAL._replace(advertised=Address("kafka.example.com", 9094))
    assert listeners == (INTERNAL._replace(is_advertised=False), advertised)


def test_two_listeners_may_advertise_one_address() -> None:
    """They are behind one load balancer."""
    texts = ["INTERNAL://10.0.0.5:9092,EXTERNAL://10.0.0.5:9094"]
    listeners = parse_listeners(texts, ["INTERNAL://lb:9092,EXTERNAL://lb:9092"], MAP)
    assert [listener.advertised for listener in listeners] == [Address("lb", 9092)] * 2


@pytest.mark.parametrize(
    ("listen", "advertised", "protocols", "message"),
    [
        ("", None, "", "bad listen '': expected HOST:PORT"),
        (",", None, "", "bad listen: expected one or more"),
        ("PLAINTEXT://", None, "", "bad listen '': expected HOST:PORT"),
        ("A B://h:1", None, "", r"bad listen 'A B://h:1': expected HOST:PORT or NAME://HOST:PORT, with a name of"),
        ("h:1,h:2", None, "", "2 listeners have the name PLAINTEXT; expected different names, as in INTERNAL://"),
        ("a://h:1,A://h:2", None, "A:PLAINTEXT", "2 listeners have the name A"),
        ("PLAINTEXT://h:1,A://i:1", None, "A:PLAINTEXT", "PLAINTEXT and A have the same port 1: expected different"),
        ("A://h:1", None, "", "no security protocol is defined for the listener A: expected .* as in A:PLAINTEXT"),
        ("A://h:1", None, "A:KERBEROS", "the listener A has the protocol KERBEROS: expected one of PLAINTEXT"),
        ("A://h:1", None, "A", "bad listener security protocol map 'A': expected NAME:PROTOCOL,NAME2:PROTOCOL2"),
        ("A://h:1", "h:1", "A:PLAINTEXT", "the advertised listener 'PLAINTEXT' does not exist: expected one of .* A"),
        ("h:1", "0.0.0.0:1", "", "bad advertised '0.0.0.0:1': expected a host that clients can reach"),
        ("h:1", "[::]:1", "", r"bad advertised '\[::\]:1': expected a host that clients can reach"),
        ("h:1", "h:0", "", "bad advertised 'h:0': expected a port from 1"),
        ("h:1", "", "", "bad advertised '': expected HOST:PORT"),
        ("h:1", "a:1,b:1", "", "bad advertised 'a:1,b:1': 2 listeners have the name PLAINTEXT"),
    ],
)
def test_wrong_listener_is_refused(listen: str, advertised: str | None, protocols: str, message: str) -> None:
    with pytest.raises(StartError, match=message):
        parse_listeners([listen], None if advertised is None else [advertised], protocols)


def test_inter_broker_listener_is_an_advertised_one() -> None:
    plaintext = Listener(listen=Address("h", 1))
    assert parse_inter_broker_listener("", [INTERNAL, plaintext]) == "PLAINTEXT"
    assert parse_inter_broker_listener("", [INTERNAL._replace(is_advertised=False), EXTERNAL]) == "EXTERNAL"
    assert parse_inter_broker_listener("internal", [EXTERNAL, INTERNAL]) == "INTERNAL"
    for listeners in ([EXTERNAL], [INTERNAL._replace(is_advertised=False), EXTERNAL]):
        with pytest.raises(
            StartError, match="bad inter broker listener name 'INTERNAL': expected an advertised listener, one of EXT"
        ):
            parse_inter_broker_listener("INTERNAL", listeners)


def test_configuration_file_has_listeners_as_text_or_as_list(tmp_path: Path) -> None:
    rest = f'listener_security_protocol_map = "{MAP}"\ninter_broker_listener_name = "EXTERNAL"\n'
    as_text, as_list = tmp_path / "text.toml", tmp_path / "list.toml"
    as_text.write_text('listen = "INTERNAL://10.0.0.5:9092,EXTERNAL://10.0.0.5:9094"\n' + rest)
    as_list.write_text('listen = ["INTERNAL://10.0.0.5:9092", "EXTERNAL://10.0.0.5:9094"]\n' + rest)
    for path in (as_text, as_list):
        options = load(config=path)[1]
        assert (options.listeners, options.inter_broker_listener) == ((INTERNAL, EXTERNAL), "EXTERNAL")
    options = load(config=as_text, listen=["h:1"], advertised=["g:2"], inter_broker_listener_name="PLAINTEXT")[1]
    assert options.listeners == (Listener(listen=Address("h", 1), advertised=Address("g", 2)),)


@pytest.mark.parametrize("value", ["9092", "[9092]", "{}"])
def test_configuration_file_with_other_values_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f"listen = {value}")
    with pytest.raises(StartError, match=r"for 'listen' in .*: expected a text or a list of texts"):
        load(config=path)


def test_each_worker_needs_a_port_for_each_listener() -> None:
    texts = ["PLAINTEXT://h:1,PLAIN2://h:2"]
    load_two = partial(load, texts, workers=2, listener_security_protocol_map="PLAIN2:PLAINTEXT")
    assert load_two(worker_ports="1-4")[1].cluster.worker_ports == (1, 4)
    with pytest.raises(
        StartError,
        match="bad worker ports 1-3: expected a port for each of 2 workers and each of 2 listeners, as in 1-4",
    ):
        load_two(worker_ports="1-3")
