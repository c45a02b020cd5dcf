"""Websocket handshakes that are answered like requests. Not a plugin, hence the underscore."""

from starlette.types import Message, Receive, Scope, Send


def as_request(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """The handshake as a GET request, whose response refuses the websocket.

    So a path that has no websocket answers as it does to any client, with its status and in its protocol's format.
    """
    sent = False

    async def receive_request() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            await receive()  # the handshake
            return {"type": "http.request", "body": b"", "more_body": False}
        await receive()
        return {"type": "http.disconnect"}

    scheme = "https" if scope.get("scheme") == "wss" else "http"
    return {**scope, "type": "http", "method": "GET", "scheme": scheme}, receive_request, refusing(send)


def refusing(send: Send) -> Send:
    """A `send` for an HTTP response to a handshake: no websocket is opened."""

    async def send_refusal(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return send_refusal
