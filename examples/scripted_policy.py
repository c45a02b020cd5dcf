"""An endpoint without a model: plays the samples' own fixes, to try a trainer or an agent without a GPU.

    python examples/scripted_policy.py [--port 8000] [--wrong]     # http://127.0.0.1:8000/v1, any key, any model name

It finds the instance by its problem statement in the conversation, looks around, applies the instance's patch (with
`--wrong` one that mends nothing) and submits. It calls `bash` where the request offers that tool, under any prefix,
and else writes calls as text. It speaks OpenAI's chat completions and responses (Codex) and, for Claude Code
(ANTHROPIC_BASE_URL without `/v1`), Anthropic's messages. Needs Python alone.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROWS = [json.loads(line) for line in (Path(__file__).parent / "instances.jsonl").read_text().splitlines()]
HARMLESS = "diff --git a/NOTES b/NOTES\nnew file mode 100644\n--- /dev/null\n+++ b/NOTES\n@@ -0,0 +1 @@\n+looked at\n"


def commands(conversation: str, *, wrong: bool) -> list[str]:
    """What is run for the instance of this conversation, a command a turn."""
    row = next((row for row in ROWS if row["problem_statement"].strip() in conversation), ROWS[0])
    patch = HARMLESS if wrong else row.get("patch") or row["gold_patch"]
    return ["git log --oneline | head -3; ls", f"git apply - <<'END_OF_PATCH'\n{patch}END_OF_PATCH"]


def turn(request: Mapping, *, wrong: bool) -> dict:
    """The next assistant message of a conversation."""
    messages = request["messages"]
    said = sum(message["role"] == "assistant" for message in messages)
    script = commands("\n".join(_text(message.get("content")) for message in messages), wrong=wrong)
    tools = [tool["function"]["name"] for tool in request.get("tools") or []]
    bash = next((name for name in tools if name.endswith("bash")), None)
    if said < len(script) and bash:
        return _call(said, bash, {"command": script[said]})
    if said < len(script):
        text = f"<function=execute_bash>\n<parameter=command>\n{script[said]}\n</parameter>\n</function>"
        return {"role": "assistant", "content": text}
    submit = next((name for name in tools if name.endswith("submit")), None)
    if submit and said == len(script):
        return _call(said, submit, {"answer": "It is done."})
    return {"role": "assistant", "content": "It is done." if tools else "<function=finish>\n</function>"}


def _call(number: int, name: str, arguments: dict) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _text(content: object) -> str:
    parts = content if isinstance(content, list) else []
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in parts)


def as_openai(request: Mapping) -> dict:
    """A request for Anthropic's messages, as far as `turn` looks at it."""
    tools = [{"function": {"name": tool["name"]}} for tool in request.get("tools") or []]
    return {"messages": request["messages"], "tools": tools}


def of_responses(request: Mapping) -> dict:
    """A request for OpenAI's responses, as far as `turn` looks at it; tools of a namespace as `namespace.name`."""
    said = request["input"] if isinstance(request["input"], list) else [{"role": "user", "content": request["input"]}]
    messages = [{"role": "assistant"} if item.get("type") == "function_call" else item for item in said]
    tools = [
        f"{tool['name']}.{one['name']}" if "tools" in tool else one.get("name", "")
        for tool in request.get("tools") or []
        for one in tool.get("tools", [tool])
    ]
    return {
        "messages": [one for one in messages if "role" in one],
        "tools": [{"function": {"name": name}} for name in tools],
    }


def as_responses(message: Mapping) -> list[dict]:
    """The output of a message of OpenAI's chat form."""
    output = []
    for call in message.get("tool_calls", []):
        namespace, _, name = call["function"]["name"].rpartition(".")
        made = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], "name": name}
        made["arguments"] = call["function"]["arguments"]
        output.append({**made, "namespace": namespace} if namespace else made)
    text = {"type": "output_text", "text": message["content"], "annotations": []}
    return output or [{"type": "message", "id": "msg", "role": "assistant", "status": "completed", "content": [text]}]


def as_anthropic(message: Mapping) -> list[dict]:
    """The content of a message of OpenAI's form."""
    calls = [
        {
            "type": "tool_use",
            "id": f"toolu_{call['id']}",
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", [])
    ]
    return calls or [{"type": "text", "text": message["content"]}]


def events(message: Mapping) -> Iterator[dict]:
    """A message of Anthropic's form as its stream."""
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            written = json.dumps(block["input"])
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": written}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": message["usage"]}
    yield {"type": "message_stop"}


class Policy(BaseHTTPRequestHandler):
    """Answers `POST .../chat/completions`, `.../responses` and `.../messages`, streamed if asked."""

    protocol_version = "HTTP/1.1"
    wrong = False

    def do_POST(self) -> None:
        """The next turn."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.partition("?")[0].endswith("/messages"):
            self._messages(request)
            return
        if self.path.partition("?")[0].endswith("/responses"):
            self._responses(request)
            return
        message = turn(request, wrong=self.wrong)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        ends = "tool_calls" if "tool_calls" in message else "stop"
        said = {
            "id": "scripted",
            "created": int(time.time()),
            "model": request.get("model", "scripted"),
            "usage": usage,
        }
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": ends}
            self._answer("application/json", json.dumps({**said, "object": "chat.completion", "choices": [choice]}))
            return
        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        choice = {"index": 0, "delta": message, "finish_reason": ends}
        chunk = {**said, "object": "chat.completion.chunk", "choices": [choice]}
        self._answer("text/event-stream", f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    def _messages(self, request: Mapping) -> None:
        content = as_anthropic(turn(as_openai(request), wrong=self.wrong))
        message = {
            "id": f"msg_{time.time_ns()}",  # Claude Code takes messages with the same id for one
            "type": "message",
            "role": "assistant",
            "model": request.get("model", "scripted"),
            "content": content,
            "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        if request.get("stream"):
            told = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(message)]
            self._answer("text/event-stream", "".join(told))
        else:
            self._answer("application/json", json.dumps(message))

    def _responses(self, request: Mapping) -> None:
        output = as_responses(turn(of_responses(request), wrong=self.wrong))
        whole = {
            "id": f"resp_{time.time_ns()}",
            "object": "response",
            "created_at": int(time.time()),
            "model": request.get("model", "scripted"),
            "status": "completed",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 1,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 2,
            },
        }
        if not request.get("stream"):
            self._answer("application/json", json.dumps(whole))
            return
        told: list[dict] = [{"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}]
        for place, item in enumerate(output):
            told.append({"type": "response.output_item.done", "output_index": place, "item": item})
        told.append({"type": "response.completed", "response": whole})
        lines = [
            f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': number})}\n\n"
            for number, one in enumerate(told)
        ]
        self._answer("text/event-stream", "".join(lines))

    def log_message(self, *words: object) -> None:
        """Say nothing of requests."""

    def _answer(self, kind: str, body: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


def main() -> None:
    """Serve until interrupted."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--wrong", action="store_true", help="apply a patch that mends nothing")
    chosen = options.parse_args()
    Policy.wrong = chosen.wrong
    ThreadingHTTPServer(("127.0.0.1", chosen.port), Policy).serve_forever()


if __name__ == "__main__":
    main()
