"""Data that several tests of templates are held against."""

import gzip
import json
import pathlib

import pytest

PEER = pathlib.Path(__file__).parents[1] / "data" / "peer-autotvm.json.gz"


@pytest.fixture(scope="session")
def peer_tasks():
    """The tasks of a network as TVM v0.14 extracts them."""
    data = json.loads(gzip.decompress(PEER.read_bytes()))
    return data.__getitem__
