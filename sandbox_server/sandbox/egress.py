"""Egress rules: parses what operators and clients write, and generates nftables rules. Pure.

Only outgoing packets are checked, one by one and without connection tracking. So a reply to an incoming connection is
checked too, and a rule added later cuts existing connections.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVERYTHING = frozenset({"0.0.0.0/0", "::/0"})
REMOVE = "add table inet sandbox_egress\ndelete table inet sandbox_egress\n"
"""Removes all rules; no error if there are none."""

# each label ends at a dot, so that no text can be cut into labels in two ways
_NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*\.?")
_PORTED = re.compile(r"(?P<host>\[[^]]*\]|[^:]*)(:(?P<port>[0-9]{1,5}))?")
_REFUSE = "reject with icmpx type admin-prohibited"  # an error at once, where a drop would mean a timeout
_NEIGHBOURS = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept"


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a rule."""

    host: str
    """An address range (10.0.0.0/8, 2001:db8::1/128) or a host name."""
    port: int | None = None
    """TCP and UDP port; None: all ports and protocols."""

    @property
    def is_name(self) -> bool:
        """`host` is a name and has to be resolved."""
        return "/" not in self.host

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parse `host`, `host:port`, `address[/bits]` or `address[/bits]:port`; IPv6 with a port is in brackets.

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
                # do not send a malformed address to a name server
                if _NAME.fullmatch(host) and not re.fullmatch(r"[0-9.]+", host):
                    return cls(host.lower().removesuffix("."), port)
        raise ValueError(f"{text[:100]!r} is no address, range or host name, with or without :port")


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


def ruleset(parties: Sequence[Egress], addresses: Mapping[str, Sequence[str]], *, beside: str = "") -> str:
    """The `nft` script that allows what every one of `parties` allows; it replaces all earlier rules atomically.

    `addresses`: host name -> its addresses, for every name in the rules. `beside`: range of the sandbox's services,
    which it always reaches. Loopback is always allowed, except the
    engine's resolver on 127.0.0.11: the queries that it forwards could carry data out.
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
        *([f"ip daddr {beside} accept"] if beside else []),
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
