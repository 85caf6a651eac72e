"""Helpers of tests: comparisons, targets, parameters and fixtures of pytest.

A test file that uses `parameters` or takes ``target`` and ``dev`` needs the plugin ``nestsmith.testing.plugin``.
"""

from . import utils
from .utils import *  # noqa: F403

for _name in dir(utils):
    if _name.startswith(("requires_", "uses_", "skip_if_")) or _name == "slow":
        globals()[_name] = getattr(utils, _name)
test_raise_error_callback = utils._raise_later
