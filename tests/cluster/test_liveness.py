"""Who is dead: silence for a TTL, by the clock of the one who looks."""

from __future__ import annotations

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


def test_pause_of_the_looker_makes_nobody_silent() -> None:
    liveness = Liveness(TTL_S)
    liveness.look({"a": b"7"}, 0.0, 0.01)
    liveness.look({"a": b"7"}, 5.0, 5.01)
    assert not liveness.is_silent("a")
