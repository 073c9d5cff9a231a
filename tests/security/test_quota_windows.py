"""How much of a quota is used: rates over a sliding window, and token buckets."""

from __future__ import annotations

from callboard.runtime.security.quota_windows import THROTTLE_MAX_MS, SlidingRate, TokenBucket


def test_rate_is_measured_over_ten_seconds_at_least() -> None:
    """So 10 connections at once are one a second."""
    rate = SlidingRate()
    for _ in range(10):
        rate.add(1, 5_000)
    assert rate.throttle_ms(1, 5_000) == 0
    rate.add(1, 5_000)
    assert rate.throttle_ms(1, 5_000) == 1_000


def test_client_waits_until_the_rate_is_at_its_limit_again_but_a_second_at_most() -> None:
    rate = SlidingRate()
    rate.add(10.05, 0)
    assert rate.throttle_ms(1, 0) == 50
    rate.add(100, 0)
    assert rate.throttle_ms(1, 0) == THROTTLE_MAX_MS


def test_values_older_than_eleven_samples_do_not_count() -> None:
    rate = SlidingRate()
    rate.add(11, 0)
    assert rate.throttle_ms(1, 10_999) == 1
    assert rate.throttle_ms(1, 11_000) == 0
    rate.add(10, 20_000)
    assert rate.throttle_ms(1, 20_000) == 0


def test_bucket_holds_what_eleven_seconds_give_and_may_owe_tokens() -> None:
    bucket = TokenBucket()
    bucket.take(11, 1, 0)
    assert bucket.throttle_ms(1, 0) == 0
    bucket.take(5, 1, 1_000)
    assert bucket.throttle_ms(1, 1_000) == 4_000
    assert bucket.throttle_ms(1, 4_999) == 1
    assert bucket.throttle_ms(1, 5_000) == 0
    bucket.take(12, 1, 100_000)
    assert bucket.throttle_ms(1, 100_000) == 1_000
