"""Helpers of tuners."""

__all__ = ["format_si_prefix"]

_PREFIXES = "yzafpn\xb5m kMGTPEZY"
_MICRO = {"\u03bc": "\xb5"}


def format_si_prefix(x, si_prefix):
    """``x`` in units of the prefix: 1500.0 with "k" is 1.5. Raises ValueError for an unknown prefix."""
    at = _PREFIXES.find(_MICRO.get(si_prefix, si_prefix)) if len(si_prefix) == 1 else -1
    if at < 0:
        raise ValueError(f"si_prefix is {si_prefix!r}; it must be one of {' '.join(_PREFIXES)}")
    return x * 10 ** -(at * 3 - 24)
