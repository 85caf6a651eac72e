"""Names of :mod:`.span` at TVM's place."""

from .span import SequentialSpan, SourceName, Span

__all__ = ["SequentialSpan", "SourceName", "Span"]
