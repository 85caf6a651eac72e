"""TVM's place for `autotvm.callback`."""

from ..callback import *  # noqa: F403
