"""What a test says in words of what it expects is not beside a false expectation."""

import pytest

from sandbox_server.grading.variants.quiet import quiet


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("def test_a():\n    assert f(2) == 4  # 2 * 2\n", "def test_a():\n    assert f(2) == 4  \n"),
        ("# coding: utf-8\nx = 'ü#ü'; y = 1  # b\n#c\n# coding: 4\n", "# coding: utf-8\nx = 'ü#ü'; y = 1  \n\n\n"),
        ("\n\nassert a == 4, 'not 4'  # 4\n", '\n\nassert a == 4, ""  \n'),
        ("\n\nassert a, (  # so\n    f'{a} is'  # 4\n    ' not 4'\n)\n", '\n\nassert a, (  \n    ""\n)\n'),
        ("self.assertEqual(f(2), 4, msg='not 4')\n", 'self.assertEqual(f(2), 4, msg="")\n'),
        ("assert a, self.assertTrue(b, msg='c')  # d\n", "assert a, self.assertTrue(b, msg='c')  # d\n"),
        ("\n\nassert a == '# 4'\n", "\n\nassert a == '# 4'\n"),
        ("\n\ndef f(:  # no Python\n", "\n\ndef f(:  # no Python\n"),
    ],
)
def test_comments_and_messages_are_taken_out(text: str, left: str) -> None:
    """Code that compares a number with the comment behind it knew which tests are false."""
    assert quiet("tests/test_a.py", text.encode()).decode() == left
    assert quiet("tests/data.txt", text.encode()).decode() == text
