"""The conclusion of a run, as sentences generated from its figures.

Two engines are compared round by round: one is called faster if it was faster in every round that both have, and there
are at least two; otherwise the comparison is "not decided". Requests per second of a starved engine decide nothing.
Requests per second of CPU time are compared too, since they depend less on other programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from callboard.bench.concurrency.plan import Case
from callboard.bench.concurrency.results import (
    BASE,
    FAILED,
    RIGHT,
    WRONG,
    LabRun,
    Summary,
    SummaryTable,
    ratios_by_round,
)
from callboard.bench.concurrency.styles import ACTORS, count, kb, ms, percent, rate, significant, times

ADVANTAGES = (
    "No lock order. A handler has exclusive access to its group and takes no second lock, so lock order and deadlocks "
    "are not an issue.",
    "No lock held during disk access or a reply. A commit that waits for the disk is a message that has not arrived "
    "yet; meanwhile its group handles heartbeats.",
    "Timers as messages. An expiry is in the same mailbox as the heartbeat that it races with, so there is no race "
    "between threads when a timer fires.",
    "Simulation under a seed. The same actors run with a seeded choice of the next message and a virtual clock, so a "
    "failing order can be repeated. With threads and locks the operating system chooses the order.",
)


PLAIN_LOOP = "plain-loop"

ROUNDS_MIN = 2  # one round decides nothing

LOCK, ACTOR, OPEN = "a lock was faster", "an actor was faster", "not decided"


class Finding(NamedTuple):
    """A heading, sentences under it, and then points or a table."""

    title: str
    sentences: Sequence[str] = ()
    points: Sequence[str] = ()
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()


class EngineComparison(NamedTuple):
    """Two engines on one case. ``ratio``: the median of the rounds' ratios; ``won``: rounds that the winner won."""

    case: Case
    winner: Summary
    loser: Summary
    ratio: float
    won: int
    rounds: int

    @property
    def decided(self) -> bool:
        """Whether the winner won all of at least two rounds, and no other program took the CPU."""
        is_starved = self.winner.is_starved or self.loser.is_starved
        return self.won == self.rounds >= ROUNDS_MIN and not is_starved


def findings(run: LabRun, table: SummaryTable) -> list[Finding]:
    """The conclusion, the most important findings first."""
    open_loop_parts = (_correctness, _least_cpu, _costs)
    parts = open_loop_parts if is_open_loop(run) else (_correctness, _fastest, _least_cpu, _locks, _advantages, _costs)
    return [*(part(run, table) for part in parts), _scope(run)]


def is_open_loop(run: LabRun) -> bool:
    """Whether the load had a fixed rate. Then requests per second say nothing about the engines that reach it."""
    return bool(run.options.get("rate"))


def key_sentences(run: LabRun, table: SummaryTable) -> list[str]:
    """A summary of the run in a few sentences."""
    if is_open_loop(run):
        return [*_correctness(run, table).sentences, *_latency(run, table)]
    first = [ranked[0] for summaries in table.values() if (ranked := ranking(summaries)) and not _has_starved(ranked)]
    sentences = [*_correctness(run, table).sentences]
    is_conclusive = int(run.options.get("rounds") or 1) >= ROUNDS_MIN
    if first and is_conclusive:
        sentences.append(f"Fastest by the median, of {count(len(first), 'case')}: {_winners(first)}.")
    if starved_count := sum(_has_starved(summaries.values()) for summaries in table.values()):
        sentences.append(
            f"In {count(starved_count, 'case')} an engine was starved of CPU: compare CPU per request there, and "
            "measure again on an idle machine."
        )
    least_cpu = [ranked[0] for summaries in table.values() if (ranked := cpu_ranking(summaries))]
    if least_cpu and is_conclusive:
        sentences.append(f"Least CPU per request, of {count(len(table), 'case')}: {_winners(least_cpu)}.")
    return [*sentences, *_locks(run, table).sentences, *_significance(run)]


def ranking(summaries: dict[str, Summary]) -> list[Summary]:
    """The correct engines, the fastest first."""
    return sorted((summary for summary in summaries.values() if summary.rounds), key=_median, reverse=True)


def _has_starved(summaries: Iterable[Summary]) -> bool:
    return any(summary.is_starved for summary in summaries)


def cpu_ranking(summaries: dict[str, Summary]) -> list[Summary]:
    """The correct engines, the one with most requests per second of CPU time first."""
    with_figures = [summary for summary in summaries.values() if summary.cpu_rates]
    return sorted(with_figures, key=lambda summary: median(summary.cpu_rates.values()), reverse=True)


def compare_engines(first: Summary, second: Summary) -> EngineComparison | None:
    """Compare two engines; the winner is faster by the median of ratios. None without a common round."""
    ratios = ratios_by_round(first.rounds, second.rounds).values()
    if not ratios:
        return None
    if median(ratios) < 1:
        return compare_engines(second, first)
    return EngineComparison(first.case, first, second, median(ratios), sum(ratio > 1 for ratio in ratios), len(ratios))


def certainty(rounds_won: int, rounds: int) -> str:
    """The number of rounds that the winner won; a comparison is decided only if it won all."""
    if rounds < ROUNDS_MIN:
        return "one round: not decided"
    return f"each of {rounds} rounds" if rounds_won == rounds else f"{rounds_won} of {rounds}: not decided"


def _median(summary: Summary) -> float:
    return summary.throughput.median if summary.throughput else 0.0


def _winners(winners: Iterable[Summary]) -> str:
    return ", ".join(
        f"{engine} in {cases}" for engine, cases in Counter(summary.engine for summary in winners).most_common()
    )


def case_name(case: Case) -> str:
    return f"{case.workload}, {count(case.groups, 'group')}"


# Correctness ----------------------------------------------------------------------------------------------------------


def _correctness(run: LabRun, table: SummaryTable) -> Finding:
    statuses = Counter(measurement.status for measurement in run.measurements)
    bad_count = statuses[WRONG] + statuses[FAILED]
    total = len(run.measurements)
    if not bad_count:
        text = f"All {count(total, 'measurement')} ended in the state that the oracle computed."
        return Finding("Correctness", [text, *_unfinished(run)])
    text = (
        f"Of {count(total, 'measurement')}, {statuses[WRONG]} ended in a wrong state{_engines_with(run, WRONG)} and "
        f"{statuses[FAILED]} failed{_engines_with(run, FAILED)}. A wrong engine has no figures and is not compared."
    )
    points = [
        f"{summary.engine} on {case_name(summary.case)}: {reason}"
        for summaries in table.values()
        for summary in summaries.values()
        for reason in summary.reasons
    ]
    return Finding("Correctness", [text, *_unfinished(run)], points)


def _engines_with(run: LabRun, status: str) -> str:
    names = dict.fromkeys(measurement.step.engine for measurement in run.measurements if measurement.status == status)
    return f" ({', '.join(names)})" if names else ""


def _unfinished(run: LabRun) -> list[str]:
    missing = run.planned - len(run.measurements)
    if not missing:
        return []
    return [f"{missing} of {count(run.planned, 'planned measurement')} were not made, since the run was interrupted."]


# Fastest --------------------------------------------------------------------------------------------------------------


def _fastest(run: LabRun, table: SummaryTable) -> Finding:
    columns = ("case", "fastest", "requests/s", f"times {BASE}", "next", "times the next", "faster in", "slowest")
    rows = [(case_name(case), *_fastest_of(ranking(summaries))) for case, summaries in table.items()]
    return Finding("Which engine was fastest", _significance(run), columns=columns, rows=rows)


def _significance(run: LabRun) -> list[str]:
    """Sentences about the significance of the comparisons."""
    rounds = int(run.options.get("rounds") or 1)
    if rounds == 1:
        return ["There was only one round, which decides nothing: the results may be accidental. Use at least three."]
    chance = percent(2 / 2**rounds)
    return [
        f"An engine is called faster than another if it was faster in each of {rounds} rounds. Of two equally fast "
        f"engines, one is called faster by chance in {chance} of comparisons."
    ]


def _fastest_of(ranked: Sequence[Summary]) -> tuple[str, ...]:
    if not ranked:
        return ("none was right", *[""] * 6)
    first = ranked[0]
    head = (first.engine, rate(_median(first)), times(first.ratio))
    if len(ranked) == 1:
        return (*head, "no other was right", "", "", "")
    comparison = compare_engines(first, ranked[1])
    last = f"{ranked[-1].engine}, {rate(_median(ranked[-1]))}/s"
    if comparison is None:
        return (*head, ranked[1].engine, "", "no common round", last)
    # The medians and the ratios of rounds may point to different engines; then the ratio is below 1.
    ratio, rounds_won = (
        (comparison.ratio, comparison.won)
        if comparison.winner is first
        else (1 / comparison.ratio, comparison.rounds - comparison.won)
    )
    won = "starved: not decided" if _has_starved(ranked[:2]) else certainty(rounds_won, comparison.rounds)
    return (*head, ranked[1].engine, times(ratio), won, last)


def _least_cpu(_run: LabRun, table: SummaryTable) -> Finding:
    columns = ("case", "least CPU", "us/request", f"CPU of {BASE}, times", "next", "CPU of the next, times", "less in")
    rows = [(case_name(case), *_least_cpu_of(summaries)) for case, summaries in table.items()]
    starved = [
        f"{summary.engine} on {case_name(case)}"
        for case, summaries in table.items()
        for summary in summaries.values()
        if summary.is_starved
    ]
    sentences = ["CPU time per request depends less on other programs than requests per second."]
    if starved:
        sentences.append(f"Starved of CPU, so that their requests per second are not compared: {', '.join(starved)}.")
    return Finding("Which engine used least CPU", sentences, columns=columns, rows=rows)


def _least_cpu_of(summaries: dict[str, Summary]) -> tuple[str, ...]:
    ranked = cpu_ranking(summaries)
    if not ranked:
        return ("no figures", *[""] * 5)
    first, base = ranked[0], summaries.get(BASE)
    ratios = list(ratios_by_round(first.cpu_rates, base.cpu_rates).values()) if base else []
    head = (first.engine, significant(first.figure("cpu_us")), times(median(ratios)) if ratios else "")
    if len(ranked) == 1:
        return (*head, "no other", "", "")
    to_next = list(ratios_by_round(first.cpu_rates, ranked[1].cpu_rates).values())
    if not to_next:
        return (*head, ranked[1].engine, "", "no common round")
    won = sum(ratio > 1 for ratio in to_next)
    return (*head, ranked[1].engine, times(median(to_next)), certainty(won, len(to_next)))


# Locks and actors -----------------------------------------------------------------------------------------------------


def _engine_sets(run: LabRun) -> dict[str, list[str]]:
    """The sets of engines to compare. Clients of engines on threads and on a loop run in different places."""
    on_loop = [engine for engine, properties in run.engines.items() if properties.get("has_loop")]
    on_threads = [engine for engine in run.engines if engine not in on_loop]
    return {"Of all engines": list(run.engines), "On threads": on_threads, "On a loop": on_loop}


def _comparisons(run: LabRun, table: SummaryTable, field: Container[str]) -> list[EngineComparison]:
    """For each case, compare the best engine with locks and the best actor engine of this set."""
    locks = [engine for engine, properties in run.engines.items() if properties.get("has_locks")]
    comparisons = []
    for summaries in table.values():
        ranked = [summary for summary in ranking(summaries) if summary.engine in field]
        lock = next((summary for summary in ranked if summary.engine in locks), None)
        actor = next((summary for summary in ranked if summary.engine in ACTORS), None)
        if lock and actor and (comparison := compare_engines(lock, actor)):
            comparisons.append(comparison)
    return comparisons


def _locks(run: LabRun, table: SummaryTable) -> Finding:
    title = "Locks compared with actors"
    fields = {
        name: matches for name, field in _engine_sets(run).items() if (matches := _comparisons(run, table, field))
    }
    if not fields:
        return Finding(title, ["Not compared: no case has both a correct engine with locks and a correct actor."])
    columns = ("", "case", "faster", "slower", "times", "faster in", "p99 ms", "slower's p99 ms")
    rows = [
        (name, *_comparison_row(comparison))
        for name, matches in fields.items()
        for side in (LOCK, OPEN)
        for comparison in _sides(matches)[side]
    ]
    return Finding(title, [_tally(name, matches) for name, matches in fields.items()], columns=columns, rows=rows)


def _tally(name: str, matches: Sequence[EngineComparison]) -> str:
    tally = ", ".join(
        f"{side} in {len(comparisons)}{_factors(comparisons)}"
        for side, comparisons in _sides(matches).items()
        if comparisons
    )
    return f"{name}, the best engine with locks compared with the best actor, {count(len(matches), 'case')}: {tally}."


def _sides(matches: Sequence[EngineComparison]) -> dict[str, list[EngineComparison]]:
    sides: dict[str, list[EngineComparison]] = {LOCK: [], ACTOR: [], OPEN: []}
    for comparison in matches:
        winner_side = ACTOR if comparison.winner.engine in ACTORS else LOCK
        sides[winner_side if comparison.decided else OPEN].append(comparison)
    return sides


def _factors(matches: Sequence[EngineComparison]) -> str:
    """How much faster, when that is decided: `` (1.20 to 2.30 times)``."""
    ratios = [comparison.ratio for comparison in matches if comparison.decided]
    if not ratios:
        return ""
    low, high = times(min(ratios)), times(max(ratios))
    return f" ({low} times)" if low == high else f" ({low} to {high} times)"


def _comparison_row(comparison: EngineComparison) -> tuple[str, ...]:
    tails = [ms(summary.figure("p99_us")) for summary in (comparison.winner, comparison.loser)]
    names = case_name(comparison.case), comparison.winner.engine, comparison.loser.engine
    return (*names, times(comparison.ratio), certainty(comparison.won, comparison.rounds), *tails)


def _advantages(run: LabRun, table: SummaryTable) -> Finding:
    """The advantages of actors, and their cost in this run."""
    lock_wins = [
        comparison
        for field in _engine_sets(run).values()
        for comparison in _sides(_comparisons(run, table, field))[LOCK]
    ]
    if lock_wins:
        factors = _factors(lock_wins)
        introduction = (
            f"Where a lock was faster, this is the cost of actors in requests per second{factors}. In return:"
        )
    else:
        introduction = "In this run no lock was faster in every round of a case. Further advantages:"
    return Finding("Advantages of actors", [introduction], [*ADVANTAGES, *_lock_waits(table), *_mailbox_cost(table)])


def _mailbox_cost(table: SummaryTable) -> list[str]:
    """What a mailbox for each group costs on a loop, in CPU time."""
    ratios = [
        median(rounds.values())
        for summaries in table.values()
        if "actor-loop" in summaries
        and PLAIN_LOOP in summaries
        and (rounds := ratios_by_round(summaries[PLAIN_LOOP].cpu_rates, summaries["actor-loop"].cpu_rates))
    ]
    if not ratios:
        return []
    return [
        f"What an actor costs: actor-loop used {times(min(ratios))} to {times(max(ratios))} times the CPU of "
        f"{PLAIN_LOOP}, which calls the groups directly on the same loop, and is correct too."
    ]


def _lock_waits(table: SummaryTable) -> list[str]:
    worst = _largest(table, "lock_wait_us")
    if worst is None:
        return []
    wait = significant(worst.figure("lock_wait_us"))
    worst_name = f"{worst.engine} on {case_name(worst.case)}"
    return [f"Waiting for locks took at most {wait} us per request ({worst_name}); actors do not wait for locks."]


# Other costs ----------------------------------------------------------------------------------------------------------


def _costs(run: LabRun, table: SummaryTable) -> Finding:
    points = [*_latency(run, table), *_memory(table), *_cold_groups(table), *_pause(table)]
    return Finding("Latency, memory, fairness, pauses", [] if points else ["No figures."], points)


def _latency(run: LabRun, table: SummaryTable) -> list[str]:
    lowest = [summary for summaries in table.values() if (summary := _smallest(summaries.values(), "p99_us"))]
    return [f"The lowest p99, of {count(len(lowest), 'case')}: {_winners(lowest)}."] if lowest else []


def _memory(table: SummaryTable) -> list[str]:
    """Memory for the case that has figures of most engines and, among these, most groups, which is most precise."""
    summaries_by_case = {case: _with_figure(summaries.values(), "bytes_a_group") for case, summaries in table.items()}
    case = max(
        summaries_by_case, key=lambda candidate: (len(summaries_by_case[candidate]), candidate.groups), default=None
    )
    if case is None or not summaries_by_case[case]:
        return []
    by_size = sorted(summaries_by_case[case], key=lambda summary: summary.figure("bytes_a_group") or 0)
    smallest, largest = by_size[0], by_size[-1]
    sizes = [f"{summary.engine} {kb(summary.figure('bytes_a_group'))}" for summary in (smallest, largest)]
    return [f"Memory per group with its members ({case_name(case)}), in kB: from {sizes[0]} to {sizes[1]}."]


def _cold_groups(table: SummaryTable) -> list[str]:
    """The case with the highest p99 of the groups that are not hot."""
    hot = {case: summaries for case, summaries in table.items() if _smallest(summaries.values(), "hot_p99_us")}
    worst = _largest(hot, "cold_p99_us")
    if worst is None:
        return []
    least = _smallest(table[worst.case].values(), "cold_p99_us")
    assert least is not None
    latencies = [f"{summary.engine} {ms(summary.figure('cold_p99_us'))} ms" for summary in (least, worst)]
    worst_name = case_name(worst.case)
    return [
        f"The p99 of the groups that are not hot was highest on {worst_name}: from {latencies[0]} to {latencies[1]}."
    ]


def _pause(table: SummaryTable) -> list[str]:
    worst = _largest(table, "loop_pause_max_ms")
    if worst is None:
        return []
    pause = significant(worst.figure("loop_pause_max_ms"))
    return [f"The longest delay of an event loop: {pause} ms, {worst.engine} on {case_name(worst.case)}."]


def _with_figure(summaries: Iterable[Summary], name: str) -> list[Summary]:
    return [summary for summary in summaries if summary.status == RIGHT and summary.figure(name) is not None]


def _smallest(summaries: Iterable[Summary], name: str) -> Summary | None:
    return min(_with_figure(summaries, name), key=lambda summary: summary.figure(name) or 0, default=None)


def _largest(table: SummaryTable, name: str) -> Summary | None:
    summaries = [
        summary for case_summaries in table.values() for summary in _with_figure(case_summaries.values(), name)
    ]
    return max(summaries, key=lambda summary: summary.figure(name) or 0, default=None)


# Scope ----------------------------------------------------------------------------------------------------------------


def _scope(run: LabRun) -> Finding:
    points = [
        f"It was run on {python_name(run)}, {count(run.machine.get('cpus') or 0, 'CPU')}, "
        f"{run.machine.get('system')}. Nothing is claimed for builds not run: {_other_builds(run)}, other versions of "
        "Python, other numbers of CPUs.",
        "There are no sockets: the figures are the cost of serialisation, including the hand-overs between "
        "threads that "
        "it needs, and not that of a server. Clients run where an engine's sockets would be: on the loop's "
        "thread, or on "
        "threads other than the engine's. So a request to a loop crosses no thread, one to a threaded engine crosses "
        "twice. To see the difference that locks make, compare threaded engines with each other, and loops with each "
        "other.",
    ]
    return Finding("Limits", points=[*points, *(f"Left out: {case}." for case in run.left_out)])


def python_name(run: LabRun) -> str:
    """The interpreter in words: implementation, version, free-threaded or not."""
    python = run.python
    return f"{python.get('implementation', 'Python')} {python.get('version', '?')} ({_threading(python)})"


def _threading(python: dict[str, object]) -> str:
    if not python.get("free_threaded"):
        return "a build with the global interpreter lock"
    return "a free-threaded build, its lock " + ("switched on" if python.get("gil_enabled") else "off")


def _other_builds(run: LabRun) -> str:
    return "builds with the global interpreter lock" if run.python.get("free_threaded") else "free-threaded builds"
