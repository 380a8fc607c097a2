"""Programs at random: some of those that random_programs.py can make."""

import pytest
from random_programs import check

import ebb.jax

EACH = 6


@pytest.mark.parametrize("first", range(0, 4 * EACH, EACH))
def test_what_is_computed_is_the_same(first):
    moved = 0
    for seed in range(first, first + EACH):
        check(seed)
        moved = ebb.jax.statistics().get("cpu", {}).get("d2h_bytes", 0)
    assert moved > 0
