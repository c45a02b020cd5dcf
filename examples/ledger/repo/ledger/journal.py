"""Entries that balance, and what they add up to."""

from collections import defaultdict
from dataclasses import dataclass, field

from ledger.money import Money


class Unbalanced(ValueError):
    """An entry's postings do not add up to zero."""


@dataclass(frozen=True)
class Posting:
    account: str
    amount: Money


@dataclass(frozen=True)
class Entry:
    text: str
    postings: tuple

    def check(self):
        sums = defaultdict(int)
        for posting in self.postings:
            sums[posting.amount.currency] += posting.amount.minor
        off = {currency: minor for currency, minor in sums.items() if minor}
        if off:
            raise Unbalanced(f"{self.text}: {', '.join(str(Money(m, c)) for c, m in sorted(off.items()))} left over")


@dataclass
class Journal:
    entries: list = field(default_factory=list)

    def post(self, text, *postings):
        entry = Entry(text, tuple(postings))
        entry.check()
        self.entries.append(entry)
        return entry

    def balance(self, account, currency="EUR"):
        total = Money(0, currency)
        for entry in self.entries:
            for posting in entry.postings:
                if posting.account == account and posting.amount.currency == currency:
                    total += posting.amount
        return total
