"""Where a container may connect to: as operators and clients write it, and as nftables takes it. Pure.

Only what leaves is judged, packet by packet and without connection tracking: an answer to somebody who connected from
elsewhere is held back too, and what a later rule forbids ends in the middle of its connection.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVERYTHING = frozenset({"0.0.0.0/0", "::/0"})
REMOVE = "add table inet sandbox_egress\ndelete table inet sandbox_egress\n"
"""Takes all rules away; no error where there are none."""

_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}\.?)*")
_PORTED = re.compile(r"(?P<host>\[[^]]*\]|[^:]*)(:(?P<port>[0-9]{1,5}))?")
_REFUSE = "reject with icmpx type admin-prohibited"  # an error at once, where a drop is a wait
_NEIGHBOURS = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept"


@dataclass(frozen=True, slots=True)
class Target:
    """What a rule is about."""

    host: str
    """A range of addresses (10.0.0.0/8, 2001:db8::1/128), or a name."""
    port: int | None = None
    """Of TCP and UDP; None: everything."""

    @property
    def is_name(self) -> bool:
        """Its addresses have to be asked for."""
        return "/" not in self.host

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Of `host`, `host:port`, `address[/bits]`, `address[/bits]:port`; IPv6 with a port in brackets.

        Raises:
            ValueError: it is none of these; says so in a sentence.
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
                # what looks like an address and is none must not be asked of a name server
                if _NAME.fullmatch(host) and not re.fullmatch(r"[0-9.]+", host):
                    return cls(host.lower().removesuffix("."), port)
        raise ValueError(f"{text[:100]!r} is no address, range or host name, with or without :port")


@dataclass(frozen=True, slots=True)
class Egress:
    """One party's word: what it allows, whatever else it says; what it denies; and the rest."""

    allow: tuple[Target, ...]
    deny: tuple[Target, ...] = ()
    rest: bool = False
    """What neither names is allowed."""

    @property
    def names(self) -> frozenset[str]:
        """Host names that the rules need the addresses of."""
        return frozenset(target.host for target in (*self.allow, *self.deny) if target.is_name)


def ruleset(parties: Sequence[Egress], addresses: Mapping[str, Sequence[str]]) -> str:
    """What every one of `parties` allows, for `nft`: takes the place of all earlier rules in one step.

    `addresses`: of every name. To itself a container may always speak, but for the engine's resolver on 127.0.0.11,
    which would carry anything out in the questions that it passes on.
    """
    stages, sixth = [], False
    for party in parties:
        lines = [line for target in party.allow for line in _rules(target, addresses, "return")]
        lines += [line for target in party.deny for line in _rules(target, addresses, _REFUSE)]
        lines.append("return" if party.rest else _REFUSE)
        sixth = sixth or party.rest or any("ip6 " in line or "ipv6" in line for line in lines)
        stages.append(lines)
    chains = [_chain(f"party{number}", lines) for number, lines in enumerate(stages)]
    out = [
        "type filter hook output priority 0; policy drop;",
        f"ip daddr 127.0.0.11 {_REFUSE}",
        'oifname "lo" accept',
        *([_NEIGHBOURS] if sixth else []),
        *(f"jump party{number}" for number in range(len(stages))),
        "accept",
    ]
    return REMOVE + "table inet sandbox_egress {\n" + "".join([*chains, _chain("out", out)]) + "}\n"


def _chain(name: str, lines: Sequence[str]) -> str:
    return f"chain {name} {{\n" + "".join(line + "\n" for line in lines) + "}\n"


def _rules(target: Target, addresses: Mapping[str, Sequence[str]], verdict: str) -> list[str]:
    port = "" if target.port is None else f" meta l4proto {{ tcp, udp }} th dport {target.port}"
    return [
        f"{_to(ipaddress.ip_network(where))}{port} {verdict}"
        for where in (addresses[target.host] if target.is_name else (target.host,))
    ]


def _to(where: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
    if not where.prefixlen:
        return f"meta nfproto ipv{where.version}"
    return f"{'ip' if where.version == 4 else 'ip6'} daddr {where}"
