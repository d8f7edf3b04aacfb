"""The same calls as coroutines. One AsyncClient belongs to one event loop; its thread drives the transfers.

A coroutine that is cancelled ends only when the library has let go of the memory its pages name.
"""
from __future__ import annotations

import asyncio
import functools
from typing import Any, Callable

from ._client import Client
from ._errors import Error
from ._cistern import Chain, Hit, Layout, Report


class AsyncClient:
    """`await AsyncClient.connect(...)`; arguments are those of cistern.Client."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop):
        self.client = client
        self._loop = loop
        self._fd = client.fileno()
        loop.add_reader(self._fd, client.poll)

    @classmethod
    async def connect(cls, router: str | None = None, **options: Any) -> AsyncClient:
        loop = asyncio.get_running_loop()
        return cls(await loop.run_in_executor(None, functools.partial(Client, router, **options)), loop)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.close()

    async def close(self) -> None:
        self._loop.remove_reader(self._fd)
        await self._loop.run_in_executor(None, self.client.close)

    def chain(self, layout: Layout, tokens: Any, extras: Any = None) -> Chain:
        return self.client.chain(layout, tokens, extras)

    def extend(self, prefix: Chain, tokens: Any, extras: Any = None) -> Chain:
        return self.client.extend(prefix, tokens, extras)

    async def lookup(self, chain: Chain, **options: int) -> int:
        return await self._run(self.client.submit_lookup, chain, **options)

    async def plan(self, chain: Chain, **options: int) -> Hit:
        return await self._run(self.client.submit_plan, chain, **options)

    async def load(self, hit: Hit, pages: Any, **options: int) -> Report:
        return await self._run(self.client.submit_load, hit, pages, **options)

    async def fetch(self, chain: Chain, pages: Any, **options: int) -> Report:
        return await self._run(self.client.submit_fetch, chain, pages, **options)

    async def store(self, chain: Chain, pages: Any, **options: int) -> Report:
        return await self._run(self.client.submit_store, chain, pages, **options)

    async def _run(self, submit: Callable[..., int], *args: Any, **options: int) -> Any:
        ended: asyncio.Future[Any] = self._loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if ended.done():
                return
            if error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(result)

        # The callback may run on any thread that waits on this client.
        call = submit(*args, lambda result, error: self._loop.call_soon_threadsafe(settle, result, error), **options)
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            try:
                self.client.cancel(call)
            except Error:
                pass  # Closed meanwhile, which ends it.
            while not ended.done():
                try:
                    await asyncio.wait([ended])
                except asyncio.CancelledError:
                    pass  # Told twice: the memory is still the library's.
            ended.exception()  # Nobody else asks for it.
            raise
