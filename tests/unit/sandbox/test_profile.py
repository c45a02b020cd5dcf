"""Parsing of a profile's trace; test_logins.py has real shells."""

import pytest

from sandbox_server.sandbox.bash.profile import Dependencies, NotPlain, Report, definition, report

BEFORE = 'declare -x HOME="/root"\ndeclare -- IFS=$\' \\t\\n\'\ndeclare -ir PPID="1"\n'


def output(*trace: str, seen: str = "", after: str = BEFORE, state: str = "umask", status: str = "00") -> str:
    """Output in the format of profile.bash."""
    traced = "".join(f"\x1e {command}\n" for command in trace)
    return "\x1d".join([seen, BEFORE, "umask", traced, status, after, state, ""])


def of(*trace: str, **parts: str) -> Report:
    return report(output(*trace, **parts), "")


def test_what_a_plain_profile_depends_on() -> None:
    found = of(
        "'[' -r /etc/profile ']'",
        ". /etc/profile",
        "\x1e id -u",
        "'[' 0 -eq 0 ']'",
        "PATH=/bin",
        "export PATH",
        "for i in /etc/profile.d/*.sh /etc/x",
        "'[' -r '/etc/profile.d/*.sh' ']'",
        "[[ -d /a b ]]",
        "test ! -e '/it'\\''s'",
        "case $- in",
        "(( 1 == 1 ))",
        "'[' -r /etc/profile ']'",
        "set +x",
    )
    assert found.dependencies == Dependencies(
        ("/etc/profile",),
        (("-r", "/etc/profile"), ("-r", "/etc/profile.d/*.sh"), ("-d", "/a"), ("-e", "/it's")),
        ("/etc/profile.d/*.sh",),
    )
    assert found.exports == ()


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/motd",
        "id -Gn",
        "/opt/bin/id -u",
        "read -r x",
        "LIST=(/opt/*)",
        "set -- /opt/a",
        "exec bash",
        "cd /tmp",
        ". profile",
        ". $'/a\\tb'",
        "'[' -d bin ']'",
        "'[' -a /x ']'",
        "'[' /a -nt /b ']'",
        "'[' -t 0 ']'",
        "for f in $(ls)",
        "for f in ~/x/*",
        "for f in *.sh",
        "trap 'echo' EXIT",
    ],
)
def test_what_is_not_plain(command: str) -> None:
    """Profiles with unknown dependencies or effects are not plain."""
    with pytest.raises(NotPlain):
        of(command)


@pytest.mark.parametrize(
    "parts",
    [
        {"status": "10"},
        {"state": "another umask"},
        {"after": 'declare -- IFS="x"\n'},  # HOME is unset
        {"after": BEFORE + 'declare -- A="1"\n'},
        {"after": BEFORE + 'declare -rx A="1"\n'},
        {"after": BEFORE + "declare -x A\n"},
        {"after": BEFORE + 'declare -x BASH_ENV="/x"\n'},
        {"after": BEFORE + 'declare -x A="1\n" and more\n'},
        {"seen": "x=$(< /etc/x)\n\x1f"},
        {"seen": "export A=$EPOCHSECONDS\n\x1f"},
        {"seen": "export A=$$\n\x1f"},
        {"seen": "x" * 100_000},
        {"seen": "\ufffd\x1f"},
    ],
)
def test_effects_that_are_not_plain(parts: dict[str, str]) -> None:
    """Unexported variables are not plain: they would be missing if the profile does not run."""
    with pytest.raises(NotPlain):
        of(**parts)


def test_exports() -> None:
    after = BEFORE.replace("/root", "/home/a") + 'declare -x B=$\'1\\n2\'\ndeclare -x C="d \\"e\\" \\$f\n"\n'
    assert of(after=after).exports == ('HOME="/home/a"', "B=$'1\\n2'", 'C="d \\"e\\" \\$f\n"')


def test_comments_and_what_goes_nowhere_do_not_matter() -> None:
    seen = "# < and $$ and RANDOM\n  # >\nmesg n 2> /dev/null || true\ntput setaf 1 >&/dev/null 2>&1\n"
    assert of(seen=f"{seen}\x1f0\x1f").states == (seen, "0")


@pytest.mark.parametrize("stderr, stdout", [("oh", output()), ("", ""), ("", output() + "\x1d")])
def test_what_a_profile_says_itself(stderr: str, stdout: str) -> None:
    """Output has to be printed for each command, so such a profile is not plain."""
    with pytest.raises(NotPlain):
        report(stdout, stderr)


def test_a_file_that_holds_our_marks() -> None:
    """A file that contains our own marks is not plain: the report could not be parsed reliably."""
    known = Dependencies(("/etc/profile",), (("-f", "/x"),), ())
    with pytest.raises(NotPlain):
        definition("1", known, Report(("a", "b", "0"), known, ()))


def test_a_check_of_locales() -> None:
    """Its output depends on the installed locales once a locale is set; without one it prints nothing."""
    assert of("\x1e /usr/bin/locale-check C.UTF-8", "eval").exports == ()
    with pytest.raises(NotPlain):
        report(output("\x1e /usr/bin/locale-check C.UTF-8").replace("declare -x HOME", "declare -x LANG"), "")
