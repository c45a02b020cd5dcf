"""`python bench/peers DRIVER` in a peer's environment: one request per input line, one response per output line.

A driver is a module with OPERATIONS (name -> coroutine function that returns the response) and `clean_up`. Nothing of
`bench` is imported here: a peer's environment has only the peer and its dependencies.
"""

import asyncio
import importlib
import json
import os
import sys


async def _serve(driver: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries, also during import, must not be mistaken for a response
    module = importlib.import_module(driver)
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            try:
                answer = await module.OPERATIONS[request.pop("op")](**request)
            except Exception as error:  # noqa: BLE001 - whatever a peer raises is its answer
                answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    finally:
        await module.clean_up()


asyncio.run(_serve(sys.argv[1]))
