"""A time sheet: named tasks and the time spent on each."""

from timespan.reader import parse
from timespan.writer import compact


class Sheet:
    def __init__(self):
        self._spent = {}

    def log(self, task, text):
        self._spent[task] = self._spent.get(task, 0.0) + parse(text)

    def report(self):
        """One line a task, longest first, then the sum."""
        lines = [f"{task}: {compact(s)}" for task, s in sorted(self._spent.items(), key=lambda item: (-item[1], item[0]))]
        return "\n".join([*lines, f"total: {compact(sum(self._spent.values()))}"])
