"""One cistern.Client for both sides of the connector in a process. A cluster that is not there costs nothing but its hits: it
is looked for in the background, ever less often."""
from __future__ import annotations

import logging
import threading

import cistern

from .options import Options

log = logging.getLogger("vllm.cistern")
RETRY_S_FIRST, RETRY_S_MAX = 0.5, 15.0

_sessions: dict[tuple[Options, str], "Session"] = {}
_sessions_lock = threading.Lock()


class Session:
    """Shared by whoever asks for the same options; ends with its last user. Any thread."""

    def __init__(self, options: Options, share: str = ""):
        self.options, self._share = options, share
        self.users = 0
        self._client: cistern.Client | None = None
        self._closing = threading.Event()
        self._retry: threading.Thread | None = None
        if not self._connect(first=True):
            self._retry = threading.Thread(target=self._keep_trying, name="cistern-connect", daemon=True)
            self._retry.start()

    @staticmethod
    def take(options: Options, share: str = "") -> Session:
        """`share`: what ranks that hold the same heads have in common; empty: no two do."""
        with _sessions_lock:
            session = _sessions.get((options, share))
            if session is None:
                session = _sessions[options, share] = Session(options, share)
            session.users += 1
            return session

    def leave(self) -> None:
        with _sessions_lock:
            self.users -= 1
            if self.users > 0:
                return
            _sessions.pop((self.options, self._share), None)
        self._closing.set()
        if self._retry is not None:
            self._retry.join()
        if self._client is not None:
            self._client.close()

    @property
    def client(self) -> cistern.Client | None:
        """None while there is no cluster: everything is a miss then."""
        return self._client

    def _connect(self, first: bool) -> bool:
        o = self.options
        try:
            self._client = cistern.Client(
                o.routers, transport=o.transport, tenant=o.tenant, deadline_ms=o.load_deadline_ms,
                connect_deadline_ms=o.connect_deadline_ms, wait_for_router=False, lease_ttl_ms=o.lease_ttl_ms,
                window_bytes=o.staging_bytes, host_share=self._share, host_share_bytes=o.share_bytes)
        except cistern.InvalidArgument:
            raise
        except cistern.Error as error:
            if first:
                log.warning("cistern: no cluster, going on without: %s", error)
            return False
        log.info("cistern: connected to %s", o.routers)
        return True

    def _keep_trying(self) -> None:
        pause = RETRY_S_FIRST
        while not self._closing.wait(pause):
            if self._connect(first=False):
                return
            pause = min(2 * pause, RETRY_S_MAX)
