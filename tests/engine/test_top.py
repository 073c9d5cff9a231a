"""The live table of a system: its rows, its rates and how it ends."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest
from actor_system.players import WAIT_TIMEOUT_S, Call, Player, Say
from rich.console import Console
from rich.table import Table

from callboard.runtime import Simulation, Stats, System
from callboard.runtime.engine.stats import ClassStats, MailboxDepth, TurnStats
from callboard.runtime.engine.top import print_stats, table, watch, watch_blocking

BEFORE = Stats(
    (ClassStats("Group", 10, 2, 0, 1000), ClassStats("Gone", 0, 0, 0, 5)),
    (),
    TurnStats(100, 8.0, 64.0, 70.0),
    restarts=0,
    dead_letters=0,
    late_replies=0,
)
AFTER = Stats(
    (ClassStats("Group", 1_200, 300, 45, 6000), ClassStats("Writer", 1, 0, 7, 40), ClassStats("Gone", 0, 0, 0, 5)),
    (MailboxDepth("Group-7", 40), MailboxDepth("Writer-1", 7)),
    TurnStats(12_345, 16.0, 2_048.0, 3_500_000.0),
    restarts=3,
    dead_letters=1_001,
    late_replies=2,
)


def printed_lines(printed: Table) -> list[str]:
    """The lines of a table printed to a file, with each run of spaces replaced by one space."""
    file = io.StringIO()
    Console(file=file, width=120).print(printed)
    return [" ".join(line.split()) for line in file.getvalue().splitlines()]


def test_table_has_a_row_with_rate_for_each_class() -> None:
    lines = printed_lines(table(AFTER, BEFORE, seconds=2.0))
    assert "class actors passivated waiting messages/s messages" in lines
    assert "Group 1,200 300 45 2,500 6,000" in lines
    assert "Writer 1 0 7 20 40" in lines, "a class without previous stats counts from 0"
    assert "Gone 0 0 0 0 5" in lines
    assert "all 1,201 300 52 2,520 6,045" in lines


def test_table_without_previous_stats_has_no_rates() -> None:
    lines = printed_lines(table(AFTER))
    assert "Group 1,200 300 45 - 6,000" in lines
    assert "all 1,201 300 52 - 6,045" in lines
    assert "Group 1,200 300 45 - 6,000" in printed_lines(table(AFTER, BEFORE, seconds=0.0)), (
        "no rates if no time has passed"
    )


def test_table_of_one_class_has_no_sum() -> None:
    assert not any(line.startswith("all ") for line in printed_lines(table(AFTER._replace(classes=AFTER.classes[:1]))))


def test_header_shows_turn_times_and_losses() -> None:
    lines = printed_lines(table(AFTER))
    assert lines[0] == "turns 12,345: p50 16 us, p99 2.0 ms, longest 3.5 s"
    assert lines[1] == "restarts 3 dead letters 1,001 late replies 2"


def test_footer_shows_deepest_mailboxes() -> None:
    lines = printed_lines(table(AFTER))
    assert lines[-3:] == ["waiting most:", "40 for Group-7", "7 for Writer-1"]
    assert printed_lines(table(BEFORE))[-1] == "no message waits"


def test_class_name_is_not_parsed_as_markup() -> None:
    """A name is printed as text, although rich has markup of this form."""
    stats = AFTER._replace(classes=(ClassStats("[red]Odd[/]", 1, 0, 0, 0),), deepest=(MailboxDepth("[bold]x[/]", 1),))
    lines = printed_lines(table(stats))
    assert "[red]Odd[/] 1 0 0 - 0" in lines
    assert lines[-1] == "1 for [bold]x[/]"


def test_print_stats_writes_table_to_file() -> None:
    simulation = Simulation(seed=1)
    system, file = System(simulation), io.StringIO()
    player = system.spawn(Player)
    for _ in range(3):
        player.ask(Say("x"))
    player.tell(Say("unread"))
    print_stats(system, file)
    assert "Player 1 0 1 - 3" in [" ".join(line.split()) for line in file.getvalue().splitlines()]
    assert "\x1b" not in file.getvalue(), "a file gets no colours"


def test_watch_draws_until_task_is_cancelled() -> None:
    async def body() -> None:
        async with System.on_loop() as system:
            player = system.spawn(Player)
            await player.ask(Say("x"), block=False)
            file = io.StringIO()
            console = Console(file=file, force_terminal=True, width=120)
            watching = asyncio.create_task(watch(system, every_s=0.001, console=console))
            for text in "yz":  # the table shows each turn without a further call
                await player.ask(Say(text), block=False)
                while f"turns {system.stats().turns.turns}:" not in file.getvalue():
                    await asyncio.sleep(0)
            watching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watching
            assert "\x1b[?25h" in file.getvalue(), "the cursor is visible again"

    asyncio.run(asyncio.wait_for(body(), WAIT_TIMEOUT_S))


def test_watch_blocking_draws_for_given_time() -> None:
    with System.on_threads() as system:
        system.spawn(Player).ask(Say("x"))
        file = io.StringIO()
        watch_blocking(system, seconds=0.02, every_s=0.001, console=Console(file=file, force_terminal=True, width=120))
    assert file.getvalue().count("turns 1:") >= 2, "the first table, and at least one after it"


def test_watch_blocking_ends_at_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    drawings = []

    def sleep(seconds: float) -> None:
        drawings.append(seconds)
        if len(drawings) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("callboard.runtime.engine.top.time.sleep", sleep)
    with System.on_threads() as system:
        watch_blocking(system, console=Console(file=io.StringIO()))
    assert drawings == [1.0, 1.0, 1.0]


def test_print_stats_while_actors_run() -> None:
    """The statistics are printed from another thread while actors start and stop."""
    with System.on_threads() as system:
        player = system.spawn(Player)
        is_over = threading.Event()

        def spawn_and_stop_child(actor: Player) -> None:
            child = actor.spawn(Player)
            child.tell(Say("x"))
            child.stop(block=False)
            if not is_over.is_set():
                actor.actor_ref.tell(Call((spawn_and_stop_child,)))

        player.tell(Call((spawn_and_stop_child,)))
        try:
            for _ in range(20):
                file = io.StringIO()
                print_stats(system, file)
                assert "Player" in file.getvalue()
        finally:
            is_over.set()
