from intervals import busy, first_free, gaps, merge


def test_merge_overlapping():
    assert merge([(5, 8), (1, 3), (2, 6)]) == [(1, 8)]


def test_merge_contained():
    assert merge([(1, 10), (2, 3)]) == [(1, 10)]


def test_gaps():
    assert gaps([(2, 4), (6, 7)], 0, 10) == [(0, 2), (4, 6), (7, 10)]


def test_first_free():
    assert first_free(60, [(540, 600)], [(600, 630)]) == 630
    assert busy([(1, 2)], [(4, 5)]) == [(1, 2), (4, 5)]
