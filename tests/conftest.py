"""What every test may ask for: the measured data, and a small table of molecules."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("puncta", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("puncta")

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of measured data beside the checkout; an absent one skips the test, and fails it in CI."""
    if not SHARED_DATA.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"the measured data is not at {SHARED_DATA}")
        pytest.skip(f"the measured data is not at {SHARED_DATA}")
    return SHARED_DATA
