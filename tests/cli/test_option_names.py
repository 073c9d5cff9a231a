"""Tests of the options' names: one name for one thing, and one form, in all commands."""

from __future__ import annotations

from argparse import Action, ArgumentParser
from collections import defaultdict
from importlib import import_module
from typing import Any

import pytest
from command_walk import CommandLine, walk_commands

from callboard.bench.__main__ import BENCHES, MODULES

COMMANDS = list(walk_commands())

SEVERAL_FORMS: dict[str, set[tuple[str | None, ...]]] = {
    "--partitions": {("N",)},
    "--format": {("csv|json",), (None,)},  # of a table for programs; of the files of a history
    "--output": {("FILE",), ("FILE.html",)},
    "--partition": {("N",), ("N,A-B,...",)},
    "--topic": {("NAME:PARTITIONS",), ("T[:P,...]",), ("TOPIC",)},
    "--transaction-partitions": {("M",), ("N",)},
    "--config": {("FILE.toml",), ("NAME=VALUE",)},  # as Kafka's tools name it
}
"""Options whose commands name their values in several ways, for the reader."""

FOLDERS = {"DIR": {"--data", "--pictures"}, "KDIR": {"--kafka-dir"}, "TABLE": {"--table"}}
"""The options for each kind of folder."""

GIVEN_UP = {
    *("--yes", "--from", "--to", "--history", "--groups", "--from-kafka-logs", "--kafka-logs", "--folder"),
    *("--server", "--bootstrap", "--table-format", "--dryrun", "--apply", "--file"),
}
"""Other names for things that have one."""

NAMES = {
    *("GROUP", "GROUP...", "TOPIC", "TOPIC...", "CHANGE", "NAME=VALUE...", "[MEMBER...]", "MODULE:FUNCTION"),
    *("USER", "USER..."),
    *("[FILE]", "DATA", "DEST", "BACKUP", "NODE", "PRINCIPAL", "OPERATION..."),
}
"""The arguments: what a command is about, or the files that it copies."""


def options(command: CommandLine) -> list[Any]:
    return [each for each in command.parameters if each.param_type_name == "option"]


def test_option_has_one_form_in_all_commands() -> None:
    forms = defaultdict[str, set[tuple[str | None, ...]]](set)
    for command in COMMANDS:
        for option in options(command):
            forms[option.opts[0]].add((option.metavar,))
    several = {name: found for name, found in forms.items() if len(found) > 1}
    assert several.keys() <= SEVERAL_FORMS.keys(), several
    assert all(found <= SEVERAL_FORMS[name] for name, found in several.items())


def test_option_has_one_short_form_and_no_second_name() -> None:
    short = defaultdict[str, set[tuple[str, ...]]](set)
    for command in COMMANDS:
        for option in options(command):
            long_names = [name for name in option.opts if name.startswith("--")]
            assert len(long_names) == 1, (command.words, option.opts)
            short[long_names[0]].add(tuple(name for name in option.opts if not name.startswith("--")))
    assert {name for name, found in short.items() if len(found) > 1} == set()


def test_each_kind_of_folder_has_one_option() -> None:
    for command in COMMANDS:
        for option in options(command):
            allowed = FOLDERS.get(str(option.metavar))
            assert allowed is None or option.opts[0] in allowed, (command.words, option.opts)


def test_given_up_names_do_not_come_back() -> None:
    names = {name for command in COMMANDS for option in options(command) for name in option.opts}
    assert names & GIVEN_UP == set()


def test_arguments_are_names_or_files_to_copy() -> None:
    arguments = {
        each.metavar for command in COMMANDS for each in command.parameters if each.param_type_name == "argument"
    }
    assert arguments <= NAMES


def test_change_that_needs_a_second_look_has_one_of_two_names() -> None:
    for command in COMMANDS:
        names = {name for option in options(command) for name in option.opts}
        assert not {"--execute", "--dry-run"} <= names, command.words


# Benchmarks ----------------------------------------------------------------------------------------------------------


class Parsed(Exception):
    """Carries a parser instead of the arguments that it parsed."""


@pytest.fixture
def bench_options(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Action]]:
    """The options of each benchmark, without hidden ones, which its child processes have."""

    def parse_args(parser: ArgumentParser, _arguments: object = None) -> object:
        raise Parsed(parser)

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_args)
    found = {}
    for name in BENCHES:
        with pytest.raises(Parsed) as parsed:
            import_module(f"callboard.bench.{MODULES.get(name, name)}").main([])
        found[name] = [action for action in parsed.value.args[0]._actions if action.help != "==SUPPRESS=="]
    return found


def form(option: Action) -> str | None:
    """How the value is written; None for an option without one."""
    return None if option.nargs == 0 else str(option.metavar)


SEVERAL_BENCH_FORMS = {
    "--output": {"FILE", "DIR"},
    "--groups": {"N", "N,N"},
    "--members": {"N", "N,N"},
    "--partitions": {"N"},
}
"""Sizes are lists where a benchmark compares them."""

SAME_AS_COMMANDS = {"--data", "--bootstrap-server", "--output", "--partitions"}
"""Options that commands have too, with a value."""


def test_option_of_benches_has_one_form(bench_options: dict[str, list[Action]]) -> None:
    forms = defaultdict[str, set[str | None]](set)
    for name, actions in bench_options.items():
        for action in actions:
            assert action.nargs in (None, 0) or action.dest == "compare", (name, action)
            assert form(action) != "None" or action.choices, (name, action)
            forms[action.option_strings[-1]].add(form(action))
    several = {name: found for name, found in forms.items() if len(found) > 1}
    assert several.keys() <= SEVERAL_BENCH_FORMS.keys(), several
    assert all(found <= SEVERAL_BENCH_FORMS[name] for name, found in several.items()), several
    of_commands = defaultdict[str, set[str | None]](set)
    for command in COMMANDS:
        for option in options(command):
            of_commands[max(option.opts, key=len)].add(None if option.is_flag else str(option.metavar))
    shared = {name for name in forms.keys() & of_commands.keys() if forms[name] != {None}}
    assert {name for name in shared if not forms[name] & of_commands[name]} == set()
    assert shared >= SAME_AS_COMMANDS


def test_given_up_names_do_not_come_back_in_benches(bench_options: dict[str, list[Action]]) -> None:
    names = {name for actions in bench_options.values() for action in actions for name in action.option_strings}
    given_up = GIVEN_UP - {"--groups"} | {"--json", "--out", "--target", "--awake", "--beating"}
    assert names & given_up == set(), "--groups is the number of groups"
    assert {"--output", "-o"} <= names
