"""Shared bills: who owes what, booked so that the journal balances."""

from ledger.journal import Posting


def share(bill, people):
    """`{person: their part of the bill}` for `people`, `{person: weight}`."""
    return dict(zip(people, bill.allocate(list(people.values()))))


def settle(journal, text, payer, bill, people):
    """Book a bill that `payer` paid and all `people` share."""
    parts = share(bill, people)
    postings = [Posting(f"owes:{person}", part) for person, part in parts.items()]
    return journal.post(text, *postings, Posting(f"paid:{payer}", -bill))
