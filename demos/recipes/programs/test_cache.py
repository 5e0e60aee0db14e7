"""Tests of which one keeps what it has made."""
import pytest

kept = []


@pytest.mark.parametrize("number", range(6))
def test_small(number):
    assert number >= 0


@pytest.mark.parametrize("number", range(4))
def test_fills_the_cache(number):
    kept.append(bytearray(b"x") * (20 << 20))
    assert len(kept[-1]) == 20 << 20
