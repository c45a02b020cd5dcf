"""Splitting an action into its top-level commands, against bash itself."""

import subprocess
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.actions.split import MAX_SPLIT_BYTES, split_commands

WHOLE = [
    "",
    "ls",
    "  ls -la  ",
    "a; b && c",
    "cat <<EOF\nline1\nEOF",
    "cat <<'EOF' > f\n$x `y\n\nEOF",
    "cat <<-E | wc\n\ta\n\tE",
    "for i in 1 2; do\necho $i\ndone",
    "if true; then\n echo 'it''s'\nfi && echo \"a\nb\" | wc -l",
    "f() {\n  echo\n}",
    "echo a \\\n  b \\\n  c",
    "ls |\n  wc",
    "ls &&\n# why\npwd",
    "echo 'a\nb'",
    "(cd x\nls)",
    "x=(1\n2)",
    "case $1 in\na) ls;;\nesac",
    "ls\n# afterwards",
    "ls\n\n",
    "# only\n# comments",
    "git commit -m \"$(cat <<'EOF'\nsubject\n\nbody\nEOF\n)\"",
]
UNSURE = [
    "if true; then\nls",
    "echo 'open\nls",
    "cat <<EOF\nnever ended\nls",
    "cat <<A <<B\na\nA\nb\nB\nls",
    "cat <<EOF; echo x\nabc\nEOF\nls",
    "cat <<'EOF'\n  EOF\nEOF\nls",
    "cat <<EOF\nEOF \nls\nEOF\npwd",
    "cat <<EOF\n EOF\nls\nEOF\npwd",
    "cat <<EOF\n EOFX\nEOF\nls",
    'cat <<"a b"\nx\na b\nls',
    "ls\r\npwd",
    "ls)\npwd",
    "ls\n" * MAX_SPLIT_BYTES,
]


@pytest.mark.parametrize("text", WHOLE + UNSURE)
def test_one_command_stays_one_piece(text):
    """A heredoc, loop or string is cut in two, or a text that bash reads otherwise is split."""
    pieces = split_commands(text)
    assert len(pieces) == 1
    assert pieces[0].strip() == text.strip()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("cd /tmp\npwd", ["cd /tmp", "pwd"]),
        ("  ls\n\n\n  pwd\n", ["ls", "pwd"]),
        ("ls;\npwd", ["ls;", "pwd"]),
        ("sleep 1 &\npwd", ["sleep 1 &", "pwd"]),
        ("a; b\nc && d\n! e", ["a; b", "c && d", "! e"]),
        ("ls # x\npwd", ["ls # x", "pwd"]),
        ("# first\nls", ["# first", "ls"]),
        ("ls\n\n# c\n\n# d\npwd", ["ls\n\n# c\n\n# d", "pwd"]),
        ("cat <<EOF > f\nx # y\nEOF\npython f\n", ["cat <<EOF > f\nx # y\nEOF", "python f"]),
        ("cat <<\\E-1\nx\nE-1\nls", ["cat <<\\E-1\nx\nE-1", "ls"]),
        ("cat <<-E\n\tx\n\tE\nls", ["cat <<-E\n\tx\n\tE", "ls"]),
        ("ls\ncat <<E\nx\nE", ["ls", "cat <<E\nx\nE"]),
        ("ls -l\n" * 2_000, ["ls -l"] * 2_000),
        ("echo a \\\n b\nls", ["echo a \\\n b", "ls"]),
        ("echo \"é\nü\"\n[[ a ]]\n(( 1 ))\nx=1", ['echo "é\nü"', "[[ a ]]", "(( 1 ))", "x=1"]),
        ("for i in 1; do\n ls\ndone\nf() {\n ls\n}\nf", ["for i in 1; do\n ls\ndone", "f() {\n ls\n}", "f"]),
    ],
)  # fmt: skip
def test_commands_split_at_top_level_newlines(text, pieces):
    """Commands are echoed and stopped otherwise than in OpenHands (equal to bashlex on all but `[[`, `((`, `\\E`)."""
    assert split_commands(text) == pieces


WORDS = st.sampled_from(
    [
        "\n", "\n", "\n", " ", "echo", "a", "'", '"', "`", "$(", ")", "(", "{ ", " }", ";", "&&", "||", "|", "<<A",
        "<<-A", "<<'A'", "\nA\n", "\n A\n", "A", "\\\n", "\\", "# c", "if", "then", "fi", "for i in", "do", "done",
        "x=1", "x=(",
        "[[ a ]]", "((", "))", "case", "esac", "in", ";;", "<", ">", "é", "\t", "\r", "!", "${", "}", "f() {", "<<<",
    ]
)  # fmt: skip
TEXTS = st.lists(st.tuples(WORDS, st.sampled_from(["", " "])).map("".join), max_size=25).map("".join)


@settings(max_examples=300)
@given(TEXTS)
def test_splitting_loses_and_reorders_nothing(text):
    """A byte of a command is lost, doubled or moved."""
    position = 0
    for piece in split_commands(text):
        start = text.index(piece, position)
        assert not text[position:start].replace("\\\n", "").strip(" \t\n")
        position = start + len(piece)
    assert not text[position:].replace("\\\n", "").strip(" \t\n")


def _bash_takes(text: str) -> bool:
    # A space before: a text that begins with "-" is no option.
    checked = subprocess.run(["bash", "-n", "-c", " " + text], capture_output=True, timeout=20)
    return checked.returncode == 0 and not checked.stderr


@settings(max_examples=300, deadline=None)
@given(TEXTS.map("echo a\n".__add__))
def test_bash_takes_each_piece_of_what_it_takes_whole(text):
    """The grammar's view of where a command ends is not bash's."""
    pieces = split_commands(text)
    if len(pieces) > 1 and _bash_takes(text):
        for piece in pieces:
            assert _bash_takes(piece), piece


COMMANDS = st.sampled_from(
    [
        "echo one",
        "printf '%s\n' a b",
        'echo "$x',
        'y"',
        "x=1",
        "cat <<E\n$x\n# no comment\nE",
        "cat <<'E' | tr a b\na $x\n\nE",
        "for i in 1 2; do\n  echo $i\ndone",
        "f() {\n echo f$1\n}",
        "f 1",
        "echo a \\\n  b",
        "# a comment",
        "",
        "echo c; echo d",
        "if [ $x ]; then\n echo x\nelse\n echo no\nfi",
        "E",
        "echo 'it''s'",
        "echo $(\necho in\n)",
        "(\necho sub\n)",
        "cd /",
        "pwd",
        "cat <<E\n E\nE",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, min_size=2, max_size=6).map("\n".join))
def test_the_pieces_do_what_the_whole_does(text):
    """Running the pieces one by one gives another output than running the text."""

    def run(*pieces: str) -> bytes:
        quoted = ["'" + piece.replace("'", "'\\''") + "'" for piece in pieces]
        script = "\n".join(f"eval {piece}" for piece in quoted)
        return subprocess.run(["bash", "-c", script], capture_output=True, cwd="/tmp", timeout=20).stdout

    assert run(*split_commands(text)) == run(text)


def cost(text: str) -> float:
    """CPU time of splitting `text` in that of a million additions, least of three: a busy machine is slow at both."""

    def took(work: Callable[[], object]) -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    def add() -> None:
        total = 0
        for number in range(1_000_000):
            total += number

    return min(took(lambda: split_commands(text)) / took(add) for _ in range(3))


@pytest.mark.parametrize(
    "unit", ["a=(", ">", "<<<", "<<A\n", "((", "${", "`", "case x in\n", "if x;then\n", "|", "$(("]
)
def test_a_hostile_text_costs_a_bounded_time(unit):
    """The parser's error recovery, quadratic, holds up the server for a second."""
    text = "ls\n" + (unit * MAX_SPLIT_BYTES)[: MAX_SPLIT_BYTES - 10] + "\nls"
    assert cost(text) < 4


def test_many_short_lines_are_bounded() -> None:
    """8,192 lines of `a`, 16 KB, kept the event loop for 0.25 s: each piece was within the bound, for itself."""
    assert cost("a\n" * 8192) < 4
