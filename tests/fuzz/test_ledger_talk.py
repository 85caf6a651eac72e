"""The tracker hears what strangers say: `tests/fuzz/ledger.py`."""

import pytest
from ledger import campaign


@pytest.mark.parametrize("count, seconds", [(20_000, 60), pytest.param(10_000_000, 900, marks=[pytest.mark.full, pytest.mark.long])])
def test_no_talk_brings_the_books_out_of_order(count, seconds):
    seen, became = campaign(count, seconds, seed=count)
    print(f"{seen} messages: {became}")
    assert became["heard"] > seen / 20 and became["refused"] > seen / 20 and seen > 1000
