"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; tests that need it skip where it is not named."""
    folder = os.environ.get("BIGSVM_DATA")
    if not folder:
        pytest.skip("set BIGSVM_DATA to the folder of real data sets to run this test")
    return Path(folder)
