"""What clients and containers write is parsed or refused, whatever it is."""

import contextlib
import json
import math

from hypothesis import example, given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from sandbox_server.boxes.templates import parsed
from sandbox_server.errors import MalformedRequest
from sandbox_server.grading.graders.harbor import rewards_of, scored
from sandbox_server.protocols.mcp import rpc
from sandbox_server.protocols.openenv import wire
from sandbox_server.sandbox.egress import Egress, Target, ruleset

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "jsonrpc",
                        "id",
                        "method",
                        "params",
                        "_meta",
                        "name",
                        "arguments",
                        "type",
                        "tool_name",
                        "content",
                    ),
                    "io.modelcontextprotocol/protocolVersion",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
CALL = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(["ping", "tools/call", ""])},
    optional={"id": JSON, "params": JSON},
)


@given(JSON | CALL, st.sampled_from([None, *rpc.VERSIONS, "1"]))
def test_any_message_of_mcp(value: object, version: str | None) -> None:
    """A batch, an id that is a list, a version that is a number end in a 500."""
    headers = Headers({} if version is None else {"mcp-protocol-version": version})
    try:
        message = rpc.read(value, headers)
    except rpc.RpcError as error:
        json.dumps(rpc.error(rpc.request_id(value), error))
    else:
        assert isinstance(message.id, int | str | None)
        json.dumps(rpc.result(message, {}))


@given(st.dictionaries(st.sampled_from(["type", "tool_name", "arguments", "content"]), JSON | st.just("call_tool")))
def test_any_action_of_openenv(value: dict[str, object]) -> None:
    with contextlib.suppress(MalformedRequest):
        wire.action_of(value)


@given(st.text() | st.from_regex(r"[a-z0-9._-]{0,12}(:[0-9]{1,6})?", fullmatch=True))
@example("a.b-c.:80")
def test_any_rule_for_the_network(text: str) -> None:
    """What is no host name gets into nft's script."""
    with contextlib.suppress(ValueError):
        target = Target.parse(text)
        assert ruleset([Egress((target,))], {target.host: ["10.0.0.1"]}).isascii()


@given(st.text())
def test_any_name_of_a_template(text: str) -> None:
    with contextlib.suppress(MalformedRequest):
        name, tag = parsed(text)
        assert f"{name}:{tag}".isascii()


@given(st.text(max_size=40) | st.integers().map(lambda number: str(number) * 20) | JSON.map(json.dumps))
@example("1" + "0" * 400)
def test_any_reward_of_a_harbor_task(text: str) -> None:
    """The tests' container writes it."""
    for path in ("reward.json", "reward.txt"):
        with contextlib.suppress(ValueError):
            assert math.isfinite(scored(rewards_of(text, path)).total)
