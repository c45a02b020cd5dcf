from ledger.journal import Entry, Journal, Posting, Unbalanced
from ledger.money import CurrencyMismatch, Money
from ledger.split import settle, share

__all__ = ["CurrencyMismatch", "Entry", "Journal", "Money", "Posting", "Unbalanced", "settle", "share"]
