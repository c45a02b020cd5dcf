"""Egress rules: entries are parsed as intended, and the generated rules enforce all of them."""

import time

import pytest

from sandbox_server.sandbox.egress import Egress, NameServer, Target, resolver_of, ruleset


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.1.2.3", "10.1.2.3/32", None),
        ("10.1.2.3:8000", "10.1.2.3/32", 8000),
        ("10.1.2.3/8", "10.0.0.0/8", None),
        ("10.0.0.0/8:443", "10.0.0.0/8", 443),
        ("0.0.0.0/0", "0.0.0.0/0", None),
        ("2001:db8::1", "2001:db8::1/128", None),
        ("[2001:db8::1]:80", "2001:db8::1/128", 80),
        ("[2001:db8::]", "2001:db8::/128", None),
        ("Trainer-0.cluster.local:8000", "trainer-0.cluster.local", 8000),
        ("example.com.", "example.com", None),
        ("*.Example.com:443", "*.example.com", 443),
    ],
)
def test_an_entry_is_read(text: str, host: str, port: int | None) -> None:
    """A port is never lost: the rule would otherwise open a whole host."""
    target = Target.parse(text)
    assert (target.host, target.port) == (host, port)
    assert target.is_name is ("/" not in host and "*" not in host)
    assert target.domain == (host[2:] if "*" in host else "")


def test_an_open_network_finds_its_ipv6_router() -> None:
    """Everything is allowed, and nothing answers: neighbours are found by packets of their own."""
    assert "nd-router-solicit } accept" in ruleset([Egress((), rest=True)], {})
    assert "nd-router-solicit } accept" not in ruleset([Egress((Target.parse("10.0.0.0/8"),))], {})


@pytest.mark.parametrize(
    "text",
    ["", ":80", "a:0", "a:65536", "a:b", "10.0.0.256", "1.2.3", "10.0.0.0/33", "*", "*.", "a.*.com",
     "*a.com", "*.*.com", "a b", "a;drop", "a}\n", "http://a", "2001:db8::1:80:x", "-a", "a..b", "[::1", "a" * 254],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    """Malformed entries are refused: misreading one would open or close the wrong thing, or inject rules."""
    with pytest.raises(ValueError, match="is not an address, range or host name"):
        Target.parse(text)


def test_a_long_name_is_refused_at_once() -> None:
    """One request of a tenant with such a rule held the server's event loop for ever."""
    began = time.process_time()
    for text in ("a" * 200 + "!", "a-" * 100 + "!", "a." * 100 + "!"):
        with pytest.raises(ValueError, match="is not an address"):
            Target.parse(text)
    assert time.process_time() - began < 1


def chains(text: str) -> dict[str, list[str]]:
    """Chain -> its lines."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("chain "):
            name = line.split()[1]
            found[name] = []
        elif line == "}":
            name = ""
        elif name:
            found[name].append(line)
    return found


REFUSE = "counter name refused reject with icmpx type admin-prohibited"


def test_every_party_has_to_let_it_through() -> None:
    """A request cannot allow more than the operator."""
    operator = Egress((Target.parse("trainer:8000"),))
    asked = Egress((Target.parse("0.0.0.0/0"),), (Target.parse("10.0.0.0/8"),), rest=True)
    found = chains(ruleset([operator, asked], {"trainer": ["10.9.0.1", "2001:db8::1"]}))
    assert found["party0"] == [
        "ip daddr 10.9.0.1/32 meta l4proto { tcp, udp } th dport 8000 return",
        "ip6 daddr 2001:db8::1/128 meta l4proto { tcp, udp } th dport 8000 return",
        REFUSE,
    ]
    assert found["party1"] == ["meta nfproto ipv4 return", f"ip daddr 10.0.0.0/8 {REFUSE}", "return"]
    out = found["out"]
    assert out[0] == "type filter hook output priority 0; policy drop;"
    assert out[-3:] == ["jump party0", "jump party1", "accept"]


def test_nothing_is_open_beside_the_entries() -> None:
    """The engine's resolver, which forwards queries, and IPv6 are covered too."""
    out = chains(ruleset([Egress((Target.parse("10.0.0.1:80"),))], {}))["out"]
    assert out[1:3] == [f"ip daddr 127.0.0.11 {REFUSE}", 'oifname "lo" accept']
    assert out[3].startswith("icmpv6 type ") and out[3].endswith(" drop"), "the kernel's own packets count"
    assert out[4:] == ["jump party0", "accept"]


def test_rules_take_the_place_of_earlier_ones() -> None:
    """A second application replaces the first instead of adding to it."""
    text = ruleset([Egress(())], {})
    assert text.startswith("add table inet sandbox_egress\ndelete table inet sandbox_egress\ntable inet")


def test_the_addresses_below_a_domain_are_a_set() -> None:
    """A name below two domains would open one of them only; or somebody else could ask the name server."""
    parties = [Egress((Target.parse("*.a.com:443"),)), Egress((Target.parse("*.b.a.com"),))]
    text = ruleset(parties, {}, name_server=NameServer.parse("10.0.0.2:5353"))
    found = chains(text)
    assert found["party0"][:2] == [
        f"ip{version} daddr @below0_{family} meta l4proto {{ tcp, udp }} th dport 443 return"
        for version, family in (("", 4), ("6", 6))
    ]
    assert found["party1"][:2] == ["ip daddr @below1_4 return", "ip6 daddr @below1_6 return"]
    assert found["out"][1] == "meta mark 0x5a4d ip daddr 10.0.0.2/32 meta l4proto { tcp, udp } th dport 5353 accept"
    outer, inner = (f"4#inet#sandbox_egress#below{n}_4,6#inet#sandbox_egress#below{n}_6" for n in (0, 1))
    assert resolver_of(text) == [
        "--server=/a.com/10.0.0.2#5353",
        f"--nftset=/a.com/{outer}",
        "--server=/b.a.com/10.0.0.2#5353",
        f"--nftset=/b.a.com/{outer},{inner}",
    ]
    assert resolver_of(ruleset([Egress(())], {}, name_server=NameServer("10.0.0.2", 53))) == []


@pytest.mark.parametrize("text", ["", "ns.example.com", "10.0.0.0/8", "10.0.0.2:0", "*.a.com"])
def test_a_name_server_is_an_address(text: str) -> None:
    """A server that could not ask it would start."""
    with pytest.raises(ValueError, match="name"):
        NameServer.parse(text)
