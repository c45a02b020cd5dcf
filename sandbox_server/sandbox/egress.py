"""Egress rules: parses what operators and clients write, and generates nftables rules. Pure.

Only outgoing packets are checked, one by one and without connection tracking. So a reply to an incoming connection is
checked too, and a rule added later cuts existing connections.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVERYTHING = frozenset({"0.0.0.0/0", "::/0"})
TABLE = "sandbox_egress"
COUNTER = "refused"
"""The counter in the table for every packet and name query that the rules refuse."""
REMOVE = f"add table inet {TABLE}\ndelete table inet {TABLE}\n"
"""Removes all rules; no error if there are none."""

# each label ends at a dot, so that no text can be cut into labels in two ways
_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?")
_PORTED = re.compile(r"(?P<host>\[[^]]*\]|[^:]*)(:(?P<port>[0-9]{1,5}))?")
# an error at once, where a drop would mean a timeout
_REFUSE = f"counter name {COUNTER} reject with icmpx type admin-prohibited"
_UNKNOWN = f'oifname "lo" udp sport 53 @th,92,4 5 counter name {COUNTER}'
"""Counts answers of the resolver that refuse a name: the last four bits of a header's flags are 5."""
_MOST_ADDRESSES = 4096  # kept for one domain; a policy can ask for any number of names
_ASKS = 0x5A4D
"""The mark of queries that the resolver sends on. No sandbox can mark its packets: that needs NET_ADMIN."""
_RESOLVER_LINE = "# resolver "
_DISCOVERY = "nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit"
_NEIGHBOURS = f"icmpv6 type {{ {_DISCOVERY} }} accept"
_UNCOUNTED = f"icmpv6 type {{ {_DISCOVERY}, mld-listener-report, mld2-listener-report }} drop"
"""Packets that the kernel sends by itself on a network with IPv6; they are no attempt of a program, so not counted."""


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a rule."""

    host: str
    """An address range (10.0.0.0/8, 2001:db8::1/128), a host name, or `*.domain`: all names below the domain."""
    port: int | None = None
    """TCP and UDP port; None: all ports and protocols."""

    @property
    def is_name(self) -> bool:
        """`host` is one name and has to be resolved."""
        return "/" not in self.host and not self.domain

    @property
    def domain(self) -> str:
        """The domain of `*.domain`; else ""."""
        return self.host[2:] if self.host.startswith("*.") else ""

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parse `host`, `*.domain` or `address[/bits]`, each with or without `:port`; IPv6 with a port is in brackets.

        Raises:
            ValueError: it has none of these forms; the message is one sentence.
        """
        try:
            return cls(str(ipaddress.ip_network(text, strict=False)))
        except ValueError:
            found = _PORTED.fullmatch(text)
        port = int(found["port"]) if found and found["port"] else None
        host = found["host"] if found else ""
        if port is None or 0 < port < 1 << 16:
            try:
                return cls(str(ipaddress.ip_network(host.removeprefix("[").removesuffix("]"), strict=False)), port)
            except ValueError:
                # a malformed address must not be looked up as a name
                if _NAME.fullmatch(host.removeprefix("*.")) and not re.fullmatch(r"[0-9.]+", host):
                    return cls(host.lower().removesuffix("."), port)
        raise ValueError(f"{text[:100]!r} is not an address, range or host name, with or without :port")


@dataclass(frozen=True, slots=True)
class Egress:
    """One party's rules: `allow` is checked first, then `deny`, then `rest`."""

    allow: tuple[Target, ...]
    deny: tuple[Target, ...] = ()
    rest: bool = False
    """Allow destinations that neither list names."""

    @property
    def names(self) -> frozenset[str]:
        """Host names in the rules, which have to be resolved."""
        return frozenset(target.host for target in (*self.allow, *self.deny) if target.is_name)

    @property
    def domains(self) -> frozenset[str]:
        """Domains below which all names are allowed."""
        return frozenset(target.domain for target in self.allow if target.domain)


def allowing(hosts: Sequence[str] | None) -> Egress | None:
    """Rules that allow these hosts, `*.domain`s and ranges and nothing else; None: no rules. Raises ValueError."""
    return None if hosts is None else Egress(tuple(map(Target.parse, hosts)))


@dataclass(frozen=True, slots=True)
class NameServer:
    """The name server that is asked for the names below a domain."""

    address: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "NameServer":
        """Parse `address` or `address:port`. Raises ValueError; the message is one sentence."""
        target = Target.parse(text)
        address, _, bits = target.host.partition("/")
        if bits not in ("32", "128"):
            raise ValueError(f"{text[:100]!r} is not an address of a name server, with or without :port")
        return cls(address, target.port or 53)

    @property
    def for_all(self) -> str:
        """The dnsmasq argument that sends queries for all names to this server."""
        return f"--server={self.address}#{self.port}"


def ruleset(
    parties: Sequence[Egress],
    addresses: Mapping[str, Sequence[str]],
    *,
    group_subnet: str = "",
    name_server: NameServer | None = None,
) -> str:
    """The `nft` script that allows what every one of `parties` allows; it replaces all earlier rules atomically.

    `addresses`: host name -> its addresses, for every name in the rules. `group_subnet`: the range of the sandbox's
    services, which it always reaches. `name_server`: needed if the rules have domains; the resolver of `resolver_of`
    fills their sets, and it alone may ask the name server. Loopback is always allowed, except the engine's resolver on
    127.0.0.11: the queries that it forwards could carry data out.
    """
    sets = {name: f"below{number}" for number, name in enumerate(sorted({n for one in parties for n in one.domains}))}
    stages, sixth = [], False
    for party in parties:
        lines = [line for target in party.allow for line in _rules(target, addresses, sets, "return")]
        lines += [line for target in party.deny for line in _rules(target, addresses, sets, _REFUSE)]
        lines.append("return" if party.rest else _REFUSE)
        sixth = sixth or party.rest or any("ip6 " in line or "ipv6" in line for line in lines)
        stages.append(lines)
    chains = [_chain(f"party{number}", lines) for number, lines in enumerate(stages)]
    out = [
        "type filter hook output priority 0; policy drop;",
        *([f"meta mark {_ASKS:#x} {_asked(name_server)} accept"] if sets and name_server else []),
        f"ip daddr 127.0.0.11 {_REFUSE}",
        *([_UNKNOWN] if sets else []),
        'oifname "lo" accept',
        *([f"ip daddr {group_subnet} accept"] if group_subnet else []),
        *([_NEIGHBOURS] if sixth else []),
        _UNCOUNTED,
        *(f"jump party{number}" for number in range(len(stages))),
        "accept",
    ]
    filled = [
        f"set {name}_{version} {{ type ipv{version}_addr; size {_MOST_ADDRESSES}; }}\n"
        for name in sets.values()
        for version in (4, 6)
    ]
    if sets:  # the resolver puts the mark of the connection that asked on the queries that it sends on
        marking = [
            "type filter hook output priority -150;",
            f'oifname "lo" meta l4proto {{ tcp, udp }} th dport 53 ct mark set {_ASKS:#x}',
        ]
        chains.append(_chain("asks", marking))
    counter = f"counter {COUNTER} {{ }}\n"
    text = REMOVE + f"table inet {TABLE} {{\n" + "".join([counter, *filled, *chains, _chain("out", out)]) + "}\n"
    return _resolver(sets, name_server) + text if sets and name_server else text


def resolver_of(rules: str) -> list[str]:
    """The arguments of the dnsmasq that fills the sets in `rules`; [] if the rules have no domains."""
    first = rules.partition("\n")[0]
    return first.removeprefix(_RESOLVER_LINE).split() if first.startswith(_RESOLVER_LINE) else []


def _resolver(sets: Mapping[str, str], name_server: NameServer) -> str:
    """A comment for the rules that holds the resolver's arguments, so that a later server can start it from them."""
    words = []
    for domain in sets:
        # dnsmasq fills only the set of the longest match, but a rule for a shorter domain allows the name too
        into = [name for other, name in sets.items() if f".{domain}".endswith(f".{other}")]
        filled = ",".join(f"{version}#inet#{TABLE}#{name}_{version}" for name in into for version in (4, 6))
        words += [f"--server=/{domain}/{name_server.address}#{name_server.port}", f"--nftset=/{domain}/{filled}"]
    return f"{_RESOLVER_LINE}{' '.join(words)}\n"


def _asked(server: NameServer) -> str:
    return f"{_to(ipaddress.ip_network(server.address))} meta l4proto {{ tcp, udp }} th dport {server.port}"


def _chain(name: str, lines: Sequence[str]) -> str:
    return f"chain {name} {{\n" + "".join(line + "\n" for line in lines) + "}\n"


def _rules(target: Target, addresses: Mapping[str, Sequence[str]], sets: Mapping[str, str], verdict: str) -> list[str]:
    port = "" if target.port is None else f" meta l4proto {{ tcp, udp }} th dport {target.port}"
    if target.domain:
        filled = sets[target.domain]
        return [f"ip daddr @{filled}_4{port} {verdict}", f"ip6 daddr @{filled}_6{port} {verdict}"]
    return [
        f"{_to(ipaddress.ip_network(where))}{port} {verdict}"
        for where in (addresses[target.host] if target.is_name else (target.host,))
    ]


def _to(where: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    if not where.prefixlen:
        return f"meta nfproto ipv{where.version}"
    return f"{'ip' if where.version == 4 else 'ip6'} daddr {where}"
