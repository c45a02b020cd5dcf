import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

import words


def test_count():
    assert words.count("a  b\nc ") == 3
    assert words.count("") == 0


def test_longest():
    assert words.longest("a b\nc d e\n") == 3


def test_greeting():
    assert Path("greeting.txt").read_text().startswith("Good")
    assert not Path("stale.txt").exists()
    assert os.environ["LANGUAGE_CODE"] == "en"
