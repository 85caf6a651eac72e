"""The version of the package."""

__version__ = "0.1.0"  # read from here by setup tools as well
