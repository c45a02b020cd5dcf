from bench.subject import Bench


async def measure(bench: Bench) -> None: ...
