"""Websocket handshakes that are answered like requests. Not a plugin, hence the underscore."""

from starlette.types import Message, Send


def refusing(send: Send) -> Send:
    """A `send` for an HTTP response to a handshake: no websocket is opened."""

    async def send_refusal(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return send_refusal
