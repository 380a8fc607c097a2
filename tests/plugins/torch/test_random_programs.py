"""Programs at random: some of those that random_programs.py can make."""

import pytest
from random_programs import check

EACH = 40


@pytest.mark.parametrize("first", range(0, 5 * EACH, EACH))
@pytest.mark.filterwarnings("ignore:grad and param do not obey the gradient layout contract:UserWarning")
def test_what_is_computed_is_the_same(first):
    computed = sum(check(seed) for seed in range(first, first + EACH))
    assert computed > EACH * 3 // 4, "most are programs that PyTorch computes"
