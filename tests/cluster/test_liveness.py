"""Who is dead: silence for a TTL, by the clock of the one who looks."""

from __future__ import annotations

import random

from callboard.runtime.cluster.liveness import Liveness

TTL_S = 1.0


def test_silence_of_a_ttl_is_death() -> None:
    liveness = Liveness(TTL_S)
    for step in range(10):
        assert liveness.look({"a": b"7"}, step / 10, step / 10 + 0.01) == {}
    assert liveness.look({"a": b"7"}, 1.0, 1.01) == {}  # the counter was first seen at 0.01
    assert liveness.look({"a": b"7"}, 1.02, 1.03) == {"a": b"7"}


def test_each_sign_of_life_starts_anew() -> None:
    liveness = Liveness(TTL_S)
    for step in range(30):
        assert liveness.look({"a": b"%d" % (step // 8)}, step / 10, step / 10 + 0.01) == {}


def test_nothing_is_concluded_after_a_pause_of_the_looker() -> None:
    liveness = Liveness(TTL_S)
    assert liveness.look({"a": b"7"}, 0.0, 0.01) == {}
    assert liveness.look({"a": b"7"}, 5.0, 5.01) == {}
    assert liveness.look({"a": b"7"}, 5.4, 5.41) == {}


def test_looker_that_is_always_slow_notices_a_death() -> None:
    """Each of its looks comes so late that it proves little, but not nothing."""
    liveness = Liveness(TTL_S)
    looks = [liveness.look({"a": b"7"}, step * 0.8, step * 0.8 + 0.01) for step in range(6)]
    assert looks[:4] == [{}] * 4
    assert looks[5] == {"a": b"7"}


def test_slow_answer_of_the_store_makes_nobody_dead() -> None:
    """The others may have waited as long for theirs, and show a sign as soon as it answers."""
    liveness = Liveness(TTL_S)
    liveness.look({"a": b"7"}, 0.0, 0.01)
    liveness.look({"a": b"7"}, 0.1, 3.0)
    assert liveness.look({"a": b"7"}, 3.1, 3.11) == {}
    assert not liveness.is_silent("a")
    assert liveness.look({"a": b"8"}, 3.2, 3.21) == {}


def test_death_is_never_concluded_before_a_ttl() -> None:
    """Leases depend on it, however the looks and their answers come."""
    draw = random.Random(1)
    for _ in range(200):
        liveness, now_s, seen_s = Liveness(TTL_S), 0.0, None
        while True:
            asked_s = now_s + draw.expovariate(5)
            now_s = asked_s + draw.expovariate(5)
            is_dead = bool(liveness.look({"a": b"7"}, asked_s, now_s))
            seen_s = now_s if seen_s is None else seen_s
            if is_dead:
                assert asked_s - seen_s >= TTL_S
                break


def test_session_without_a_sign_dies_too() -> None:
    liveness = Liveness(TTL_S)
    looks = [liveness.look({"a": None}, step / 10, step / 10) for step in range(12)]
    assert looks[-1] == {"a": None}


def test_session_that_has_left_is_forgotten() -> None:
    liveness = Liveness(TTL_S)
    for step in range(9):
        liveness.look({"a": b"7"} if step < 5 else {}, step / 10, step / 10)
    for step in range(9, 15):
        assert liveness.look({"a": b"7"}, step / 10, step / 10) == {}


def test_session_is_silent_after_half_a_ttl_and_until_its_next_sign() -> None:
    liveness = Liveness(TTL_S)
    for step in range(5):
        liveness.look({"a": b"7", "b": b"%d" % step}, step / 10, step / 10)
        assert not liveness.is_silent("a")
    liveness.look({"a": b"7", "b": b"5"}, 0.51, 0.51)
    assert liveness.is_silent("a")
    assert not liveness.is_silent("b")
    liveness.look({"a": b"8", "b": b"5"}, 0.6, 0.6)
    assert not liveness.is_silent("a")


def test_session_falls_silent_once_and_again_after_a_sign_of_life() -> None:
    liveness, fell = Liveness(TTL_S), list[bool]()
    for counter in (b"7", b"8"):
        for _ in range(10):
            now_s = len(fell) / 10
            liveness.look({"a": counter}, now_s, now_s + 0.01)
            fell.append("a" in liveness.fell_silent)
    assert [fell[:10].count(True), fell[10:].count(True)] == [1, 1]


def test_pause_of_the_looker_makes_nobody_silent() -> None:
    liveness = Liveness(TTL_S)
    liveness.look({"a": b"7"}, 0.0, 0.01)
    liveness.look({"a": b"7"}, 5.0, 5.01)
    assert not liveness.is_silent("a")
