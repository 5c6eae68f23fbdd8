"""The KV pool of the simulated engine: who holds which pages, in the tree and outside of it.

Pure; one unit, the page. Every page of the pool is free, private to one request, or in the prefix tree
(locked by the requests that use it, or evictable).
"""

from __future__ import annotations

from raybench.sim.cache import DeviceCache, HostCache
from raybench.sim.request import Request


class KvPool:
    """`radix` off: nothing is kept of a request that ended."""

    def __init__(self, pages: int, page_tokens: int, *, radix: bool, host_pages: int) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self.device = DeviceCache()
        self.host = HostCache(host_pages)
        self._radix = radix
        self._private = 0
        self.evicted_pages = 0

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return self.pages - self._private - len(self.device)

    @property
    def available(self) -> int:
        """Pages that a request could get: free ones and evictable ones."""
        return self.free + self.device.evictable

    @property
    def used(self) -> int:
        """Pages that requests hold."""
        return self.pages - self.available

    def missing(self, request: Request, tokens: int) -> int:
        """Pages that this request lacks to hold `tokens` tokens."""
        pages = -(-tokens // self.page_tokens)
        return max(pages - request.locked_pages - request.private_pages, 0)

    def match(self, request: Request, now: float) -> tuple[int, int]:
        """Leading pages of this request found on the device, and after them on the host.

        The last token of a prompt is always computed, so the last page of one that fills it is no hit.
        """
        keys = request.keys[: (request.target - 1) // self.page_tokens]
        device = self.device.match(keys, now) if self._radix else 0
        host = self.host.match(keys[device:])
        return device, max(host, min(request.held_pages, len(keys)) - device)

    def hold(self, request: Request, pages: int) -> None:
        """Lock the first `pages` pages, which are in the tree, for this request."""
        self.device.lock(request.keys[request.locked_pages : pages])
        request.locked_pages = pages

    def grow(self, request: Request, tokens: int) -> None:
        """Give the request room for `tokens` tokens; evicts. The caller made sure that there is room."""
        need = self.missing(request, tokens)
        short = need - self.free
        if short > 0:
            evicted = self.device.evict(short)
            assert evicted == short, f"the pool lacks {short - evicted} pages"
            self.evicted_pages += evicted
        request.private_pages += need
        self._private += need

    def share(self, request: Request, tokens: int, now: float) -> int:
        """Move the full pages of the first `tokens` tokens into the tree; gives how many were backed up
        to the host tier by that."""
        if not self._radix:
            return 0
        pages = min(tokens // self.page_tokens, len(request.keys))
        moved = pages - request.locked_pages
        new = self.device.insert(request.keys[:pages], now)
        self.hold(request, pages)
        request.private_pages -= moved
        self._private -= moved
        return self.host.store(request.keys[:pages]) if new else 0

    def release(self, request: Request) -> None:
        """Take everything back from a request; what it shared stays in the tree."""
        self.device.unlock(request.keys[: request.locked_pages])
        self._private -= request.private_pages
        request.private_pages = request.locked_pages = 0
        assert self._private >= 0, "more private pages came back than were given"

    def flush(self, *, host: bool) -> None:
        """Empty the tree, and the host tier if `host`. Nothing may be in use."""
        assert self._private == 0, "the pool was flushed under a running request"
        self.device.clear()
        if host:
            self.host.clear()
