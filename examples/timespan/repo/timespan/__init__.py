from timespan.reader import BadSpan, parse
from timespan.sheet import Sheet
from timespan.writer import compact, clock

__all__ = ["BadSpan", "Sheet", "clock", "compact", "parse"]
