"""The demo must not be satisfied by a server that rewards everything."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
import typer

from sandbox_server.cli.demo import demo
from sandbox_server.cli.demo_search import Script, drive

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REPLY = {
    "sid": "7",
    "content": "42 README applied-21 shown-21 No errors found in test. test_merge Your answer is recorded.",
    "verdict": "resolved",
    "reward": 1.0,
    "mask": False,
}


class Generous(BaseHTTPRequestHandler):
    """Answers every request with all that the demo looks for, and always `resolved`."""

    def log_message(self, format, *arguments):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        data = json.dumps(REPLY).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def generous_url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Generous)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_reward_for_a_wrong_answer_fails_the_demo(generous_url, capsys):
    """Without this the demo would exit 0 on a server that grades nothing."""
    with pytest.raises(typer.Exit) as caught:
        demo(url=generous_url, examples=EXAMPLES)
    assert caught.value.exit_code == 1
    printed = capsys.readouterr()
    samples = len(list(EXAMPLES.glob("*/instance.json")))
    assert f"{2 * samples} verdicts are not as expected" in printed.err
    assert printed.out.count("NOT AS EXPECTED") == 2 * samples


def test_a_total_that_is_not_the_answers_fails_the_search_demo(generous_url, capsys):
    """Every rollout earns 1.0 there, whatever it answered."""
    script = Script("samples__almanac-x", "A bug", "a wrong answer", (), "<files>\na.py\n</files>", 0.5)
    with httpx.Client(base_url=generous_url) as client:
        assert not drive(client, script)
    assert "NOT AS EXPECTED: 1.0 instead of 0.5" in capsys.readouterr().out
