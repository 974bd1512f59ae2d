"""What every test may ask for: the measured data, and servers on loopback."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.servers import BucketServer, FileServer, bucket_server, file_server

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


@pytest.fixture(scope="session")
def running_http_server() -> Iterator[FileServer]:
    """A web server for the whole run; tests take `http_server`."""
    with file_server() as server:
        yield server


@pytest.fixture
def http_server(running_http_server: FileServer) -> FileServer:
    """A web server that counts its requests and can be told what to serve, and what to do wrong."""
    running_http_server.reset()
    return running_http_server


@pytest.fixture(scope="session")
def running_s3_server() -> Iterator[BucketServer]:
    """An S3 service for the whole run; tests take `s3_server`."""
    with bucket_server() as server:
        yield server


@pytest.fixture
def s3_server(running_s3_server: BucketServer) -> BucketServer:
    """An S3 service without buckets that counts its requests."""
    running_s3_server.reset()
    return running_s3_server
