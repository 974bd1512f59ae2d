"""Every test begins with no shard's index known, so that its requests can be counted."""

import pytest

from puncta.arrays._shard_index import INDEXES


@pytest.fixture(autouse=True)
def _no_indexes() -> None:
    INDEXES.clear()
