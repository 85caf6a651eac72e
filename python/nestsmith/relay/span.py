"""Where an expression comes from: a name of a source and places in it."""

from ..structure import Node, rule

__all__ = ["SourceName", "Span", "SequentialSpan"]


class SourceName:
    """The name of a source: a file, a layer of a model."""

    def __init__(self, name):
        self.name = str(name)

    def __eq__(self, other):
        return isinstance(other, SourceName) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return self.name


class Span:
    """A part of a source, by lines and columns."""

    def __init__(self, source_name, line=0, end_line=0, column=0, end_column=0):
        self.source_name = source_name if source_name is None or isinstance(source_name, SourceName) else SourceName(source_name)
        self.line, self.end_line, self.column, self.end_column = int(line), int(end_line), int(column), int(end_column)

    def same_as(self, other):
        """Whether the other one is this object."""
        return self is other

    def _key(self):
        return self.source_name, self.line, self.end_line, self.column, self.end_column

    def __eq__(self, other):
        return isinstance(other, Span) and self._key() == other._key()

    def __hash__(self):
        return hash(self._key())

    def __repr__(self):
        return f"{self.source_name}:{self.line}:{self.column}"


class SequentialSpan:
    """Several spans: what one expression was made of."""

    def __init__(self, spans):
        self.spans = [p for s in spans for p in (s.spans if isinstance(s, SequentialSpan) else [s])]

    def __eq__(self, other):
        return isinstance(other, SequentialSpan) and self.spans == other.spans

    def __hash__(self):
        return hash(tuple(self.spans))

    def __repr__(self):
        return ", ".join(map(str, self.spans))


@rule(Span)
def _span(s):
    return Node(("Span", str(s.source_name), s.line, s.end_line, s.column, s.end_column))


@rule(SequentialSpan)
def _spans(s):
    return Node(("SequentialSpan",), ((".spans", s.spans),))
