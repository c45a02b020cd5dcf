"""Slime's E2BSandbox, by the calls that it makes of the E2B SDK; run by the SDK's own interpreter.

python by_e2b.py < {"rows", "patches", "host", "agent"}     prints what `rollout.rollouts` gives
"""

import asyncio
import io
import json
import sys
from pathlib import Path

from e2b import AsyncSandbox
from e2b.sandbox.commands.command_handle import CommandExitException
from rollout import polled, rollouts

KEY = "image"


class E2BSandbox:
    def __init__(self, image):
        self.image = image
        self.sandbox_id = ""

    async def __aenter__(self):
        metadata = {KEY: self.image, "size": "md"}
        self._sb = await AsyncSandbox.create(timeout=3600, metadata=metadata)
        self.sandbox_id = self._sb.sandbox_id
        return self

    async def __aexit__(self, *_):
        await self._sb.kill()

    async def exec(self, cmd, *, user="root", env=None, timeout=120, check=False):
        try:
            done = await self._sb.commands.run(
                cmd, user=user, envs=env, timeout=timeout, on_stdout=lambda s: None, on_stderr=lambda s: None
            )
        except CommandExitException as error:
            if check:
                raise RuntimeError(f"exit={error.exit_code}: {cmd[:120]}\n{(error.stderr or '')[:400]}") from None
            return error.exit_code, error.stdout or "", error.stderr or ""
        return done.exit_code, done.stdout or "", done.stderr or ""

    async def write_file(self, path, content, *, user="root"):
        if isinstance(content, str):
            await self._sb.files.write(path, content, user=user)
            return
        stream = content.open("rb") if isinstance(content, Path) else io.BytesIO(content)
        with stream:
            await self._sb.files.write(path, stream, user=user, gzip=False, use_octet_stream=True, request_timeout=600)

    async def read_file(self, path, *, user="root"):
        try:
            return await self._sb.files.read(path, user=user)
        except Exception:  # noqa: BLE001  # slime's contract
            return ""


def main():
    asked = json.load(sys.stdin)
    found = asyncio.run(
        rollouts(Path(asked["rows"]), asked["patches"], E2BSandbox, polled, asked["host"], Path(asked["agent"]))
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
