"""Passes over modules and the context that configures them."""

from .relay import passes as _passes
from .relay.passes import *  # noqa: F403

__all__ = _passes.__all__
