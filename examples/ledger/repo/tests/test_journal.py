import pytest

from ledger import Journal, Money, Posting, Unbalanced, settle


def test_an_unbalanced_entry_is_refused():
    journal = Journal()
    with pytest.raises(Unbalanced, match="1.00 EUR left over"):
        journal.post("oops", Posting("a", Money(300)), Posting("b", Money(-200)))
    assert journal.entries == []


def test_balance_of_one_account():
    journal = Journal()
    journal.post("rent", Posting("rent", Money(70000)), Posting("bank", Money(-70000)))
    journal.post("back", Posting("bank", Money(500)), Posting("rent", Money(-500)))
    assert journal.balance("bank") == Money(-69500)


def test_settle_an_even_bill():
    journal = Journal()
    settle(journal, "lunch", "ann", Money(900), {"ann": 1, "bob": 2})
    assert journal.balance("owes:bob") == Money(600)
