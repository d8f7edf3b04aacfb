"""The scheduler's side: what of a request is cached, and which pages the workers load and save each step. One thread, the
scheduler's; every call here is bounded by lookup_deadline_ms."""
from __future__ import annotations

import array
import collections
import dataclasses
import logging
import math
import time
from typing import Any

import cistern

from .groups import Group
from .identity import can_be_named, request_extras
from .metadata import Load, Save, StepPlan
from .options import Options
from .session import Session

log = logging.getLogger("vllm.cistern")
TRACKED_MAX = 1 << 16  # Requests of one engine; vLLM itself holds far fewer.
HITLESS_LOOKUPS_MAX = 1000  # So many without one hit, while pages are stored: somebody should look.
BOUNDARIES_MAX = 32  # Ends of a hit that are tried for a state; it is kept where prompts and steps ended.


@dataclasses.dataclass
class Answer:
    """What a request was told, until it is loaded or done. The hits keep their leases."""

    num_tokens: int
    local_tokens: int
    tokens: int
    hits: list[cistern.Hit]
    until: float


@dataclasses.dataclass
class Tracked:
    request: Any
    extras: list[list[cistern.Extra]]  # per group
    chains: list[cistern.Chain | None]  # per group
    blocks: list[list[int]]  # per group, the engine's
    saved: list[int]  # per group: engine blocks that need no save any more
    local_tokens: int = 0  # As of the last question.
    answer: Answer | None = None


class SchedulerSide:
    def __init__(self, session: Session, groups: list[Group], options: Options, ranks: int = 1):
        self._session, self._groups, self._options = session, groups, options
        # A hit ends where every group's engine block ends; what lies between is never loaded.
        self._unit = math.lcm(*(group.block_size for group in groups))
        self._states = [group for group in groups if group.is_state]
        self._is_async = options.load_async or len(groups) > 1  # Failures in several groups can only be told by request.
        self._ranks = ranks
        # Steps in which the model runs on pages whose loads may still fail, until their end is known. What it computes there may have to be computed anew,
        # for whatever request shares the pages, so that nothing is stored meanwhile.
        self._steps, self._unproven = 0, set()
        self._tracked: dict[str, Tracked] = {}
        self._loads: dict[str, list[Load]] = {}
        self.counters: collections.Counter[str] = collections.Counter()
        self._said: set[str] = set()  # What was logged once.
        self._hitless, self._stores = 0, False  # Lookups since the last hit; whether pages were stored.

    def use(self, groups: list[Group]) -> None:
        """From now on under other keys."""
        self._groups = groups
        self._states = [group for group in groups if group.is_state]
        for tracked in self._tracked.values():
            tracked.answer = None
            tracked.chains = [None] * len(groups)

    # ------------------------------------------------ lookup
    def match(self, request: Any, local_tokens: int) -> tuple[int, bool]:
        begin = time.perf_counter()
        try:
            tokens = self._match(request, local_tokens)
        except Exception as error:  # Whatever it is, the engine goes on without.
            self._say("lookup", error)
            tokens = 0
        self.counters["lookups"] += 1
        self.counters["lookup_us"] += int((time.perf_counter() - begin) * 1e6)
        self.counters["lookup_hits"] += tokens > 0
        self._watch(tokens > 0)
        return tokens, self._is_async and tokens > 0

    def _watch(self, is_hit: bool) -> None:
        """Pages that nobody finds are most often ones that somebody names differently (F54)."""
        self._hitless = 0 if is_hit else self._hitless + 1
        if self._hitless == HITLESS_LOOKUPS_MAX and self._stores:
            self.counters["hitless_alarms"] += 1
            log.warning("cistern: pages are stored, but the last %d lookups found none; do engines that should share pages have the same model, "
                        "weights_id, types, block size and tenant? This one's keys: %s", HITLESS_LOOKUPS_MAX, self.fingerprint())

    def fingerprint(self) -> str:
        """What two engines have in common when they find each other's pages, in a form that can be compared by eye."""
        return "; ".join(f"group {g.index}: {g.layout.compute_digest.hex()[:12]} {g.layout.block_tokens} tokens {g.layout.dtype} {g.layout.geometry}"
                         for g in self._groups)

    def _match(self, request: Any, local_tokens: int) -> int:
        tracked = self._track(request)
        # One token is always left to compute: the next one comes out of it.
        last = (request.num_tokens - 1) // self._unit * self._unit
        if tracked is None or last <= local_tokens or request.skip_reading_prefix_cache:
            return 0
        tracked.local_tokens = local_tokens
        answer = tracked.answer
        if (answer is not None and (answer.num_tokens, answer.local_tokens) == (request.num_tokens, local_tokens)
                and time.monotonic() < answer.until):
            return answer.tokens
        tracked.answer = None  # Its leases end with it.
        found = self._plan(tracked, last)
        if found is None:
            return 0
        hits, end = found
        if end <= local_tokens:
            return 0
        tracked.answer = Answer(request.num_tokens, local_tokens, end - local_tokens, hits, self._lease_end())
        return end - local_tokens

    def _plan(self, tracked: Tracked, last: int) -> tuple[list[cistern.Hit], int] | None:
        """Leases what is cached of the first `last` tokens in every group; the hit is the shortest of them."""
        client, end, hits = self._session.client, last, []
        if client is None:
            return None
        deadline = time.monotonic() + self._options.lookup_deadline_ms / 1e3
        try:
            for group in self._groups:
                if group.is_state:
                    continue
                hit = client.plan(self._chain(tracked, group, last), deadline_ms=self._left_ms(deadline))
                hits.append(hit)
                end = min(end, hit.blocks * group.block_tokens)
            end = end // self._unit * self._unit
            return self._plan_states(tracked, hits, end, deadline) if self._states else (hits, end)
        except TimeoutError:
            self.counters["lookup_deadlines"] += 1
        except cistern.Error as error:
            self._say("lookup", error)
        return None

    def _plan_states(self, tracked: Tracked, hits: list[cistern.Hit], end: int, deadline: float) -> tuple[list[cistern.Hit], int]:
        """The last boundary up to `end` at which the states of all groups are there."""
        for boundary in range(end, max(0, end - BOUNDARIES_MAX * self._unit), -self._unit):
            found = []
            for group in self._states:
                hit = self._session.client.plan(self._chain(tracked, group, boundary), deadline_ms=self._left_ms(deadline))
                if hit.blocks == 0:
                    break
                found.append(hit)
            if len(found) == len(self._states):
                return hits + found, boundary
        return hits, 0

    @staticmethod
    def _left_ms(deadline: float) -> int:
        left_ms = int((deadline - time.monotonic()) * 1e3)
        if left_ms <= 0:
            raise TimeoutError
        return left_ms

    def _lease_end(self) -> float:
        return time.monotonic() + self._options.lease_ttl_ms / 2e3  # Half of it is left to whoever loads.

    def _track(self, request: Any) -> Tracked | None:
        tracked = self._tracked.get(request.request_id)
        if tracked is not None:
            return tracked
        if not can_be_named(request) or len(self._tracked) >= TRACKED_MAX:
            self.counters["requests_left_out"] += 1
            return None
        count = len(self._groups)
        tracked = Tracked(request, [request_extras(request, g.block_tokens) for g in self._groups], [None] * count,
                          [[] for _ in range(count)], [0] * count)
        self._tracked[request.request_id] = tracked
        return tracked

    def _chain(self, tracked: Tracked, group: Group, tokens: int) -> cistern.Chain:
        """The chain of at least the request's first `tokens` tokens, hashed once. Of a state group: the one block that ends there."""
        client, chain = self._session.client, tracked.chains[group.index]
        if group.is_state:
            history = next(g for g in self._groups if not g.is_state and g.window is None)
            name = self._chain(tracked, history, tokens).hash(tokens // history.block_tokens - 1)
            return client.chain(group.layout, array.array("I", name))
        done = 0 if chain is None else chain.blocks * group.block_tokens
        if chain is not None and done >= tokens:
            return chain
        more = tracked.request.all_token_ids[done:tokens]
        if chain is None:
            chain = client.chain(group.layout, more, tracked.extras[group.index])
        else:
            chain = client.extend(chain, more)
        tracked.chains[group.index] = chain
        return chain

    # ------------------------------------------------ loads
    def allocated(self, request: Any, block_ids: tuple[list[int], ...], external_tokens: int) -> None:
        """Once told that tokens are external, the engine waits for a load or takes them for loaded: there is always one from here
        on, be it one of which the worker can only say that it failed."""
        tracked = self._tracked.get(request.request_id)
        if external_tokens <= 0 or tracked is None:
            return
        local, end = tracked.local_tokens, tracked.local_tokens + external_tokens
        if tracked.answer is None or time.monotonic() >= tracked.answer.until:
            self._lease_again(tracked, end)
        loads = []
        for group, ids in zip(self._groups, block_ids):
            last = end // group.block_size
            first = max(local // group.block_size, group.first_needed(last))
            try:
                chain = self._chain(tracked, group, end)
            except Exception as error:
                self._say("load", error)
                chain = None
            loads.append(Load(group.index, chain, 0 if group.is_state else first * group.per_page, list(ids[first:last])))
        self._loads[request.request_id] = loads

    def _lease_again(self, tracked: Tracked, end: int) -> None:
        """Allocation took long. What is gone meanwhile is told page by page by who loads."""
        self.counters["leases_renewed"] += 1
        try:
            found = self._plan(tracked, end)
        except Exception as error:
            self._say("load", error)
            return
        if found is not None:
            tracked.answer = Answer(tracked.request.num_tokens, tracked.local_tokens, end - tracked.local_tokens, found[0], self._lease_end())

    # ------------------------------------------------ steps
    def plan_step(self, step: Any) -> StepPlan:
        begin = time.perf_counter()
        plan = self._plan_step(step)
        self.counters["plan_us"] += int((time.perf_counter() - begin) * 1e6)
        return plan

    def _plan_step(self, step: Any) -> StepPlan:
        plan, self._loads = StepPlan(loads=self._loads), {}
        hold = bool(self._unproven)
        if plan.loads and not self._is_async:
            self._steps += 1
            plan.number = self._steps
            self._unproven.add(plan.number)
            hold |= self._ranks > 1  # One that computes alone sees for itself whether its loads have failed.
        for new in step.scheduled_new_reqs:
            tracked = self._tracked.get(new.req_id)
            if tracked is not None:
                self._restart(tracked, new.block_ids, new.num_computed_tokens)
                if not hold:
                    self._save(plan, tracked, new.num_computed_tokens + step.num_scheduled_tokens[new.req_id])
        cached = step.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            tracked = self._tracked.get(request_id)
            if tracked is None:
                continue
            computed, more = cached.num_computed_tokens[i], cached.new_block_ids[i]
            if request_id in cached.resumed_req_ids:
                self._restart(tracked, more or (), computed)
            elif more:
                for mine, ids in zip(tracked.blocks, more):
                    mine.extend(ids)
            if not self._is_async:  # Blocks whose loads failed are computed, and stored, anew.
                tracked.saved = [min(n, computed // g.block_size) for n, g in zip(tracked.saved, self._groups)]
            if not hold:
                self._save(plan, tracked, computed + step.num_scheduled_tokens[request_id])
        if self._states and step.kv_connector_block_state is not None:
            for request_id, offers in step.kv_connector_block_state.boundary_state_offloads.items():
                if request_id in step.num_scheduled_tokens and request_id in self._tracked:
                    self._save_states(plan, self._tracked[request_id], offers)
        return plan

    def _save_states(self, plan: StepPlan, tracked: Tracked, offers: list[tuple[int, int, int]]) -> None:
        """States that the engine has at the end of this step, and the blocks that hold them; they are copied before the next one."""
        if self._session.client is None:
            return
        for index, block, tokens in offers:
            group = self._groups[index]
            if not group.is_state or block == 0 or tokens % self._unit or not 0 < tokens <= len(tracked.request.all_token_ids):
                continue
            if tokens // group.block_size <= tracked.saved[index]:
                continue  # It was loaded.
            try:
                plan.saves.append(Save(index, self._chain(tracked, group, tokens), 0, [block]))
            except Exception as error:
                self._say("save", error)

    def _restart(self, tracked: Tracked, block_ids: Any, computed: int) -> None:
        tracked.blocks = [list(ids) for ids in block_ids] or [[] for _ in self._groups]
        tracked.saved = [computed // group.block_size for group in self._groups]

    def _save(self, plan: StepPlan, tracked: Tracked, computed_after: int) -> None:
        if self._session.client is None:
            return
        # Drafts that may still be rejected are not among all_token_ids: only committed tokens are stored.
        committed = min(computed_after, len(tracked.request.all_token_ids))
        try:
            for group in self._groups:
                if not group.is_state:  # Its blocks are no list that grows: see _save_states.
                    self._save_group(plan, tracked, group, committed)
        except Exception as error:
            self._say("save", error)

    def _save_group(self, plan: StepPlan, tracked: Tracked, group: Group, committed: int) -> None:
        ids, first = tracked.blocks[group.index], tracked.saved[group.index]
        full = min(committed // group.block_size, len(ids))
        if full <= first:
            return
        chain = self._chain(tracked, group, full * group.block_size)
        tracked.saved[group.index] = full
        while first < full:  # Blocks that a window has left behind are placeholders: runs between them.
            if ids[first] == 0:
                first += 1
                continue
            end = first
            while end < full and ids[end] != 0:
                end += 1
            plan.saves.append(Save(group.index, chain, first * group.per_page, ids[first:end]))
            self._stores = True
            first = end

    # ------------------------------------------------ ends
    def received(self, request_ids: Any) -> None:
        for request_id in request_ids or ():
            tracked = self._tracked.get(request_id)
            if tracked is not None:
                tracked.answer = None

    def loaded(self, numbers: set[int]) -> None:
        """The engine knows of these steps which loads failed, and where it begins anew."""
        self._unproven -= numbers

    def finished(self, request_id: str) -> None:
        self._tracked.pop(request_id, None)
        self._loads.pop(request_id, None)

    def _say(self, what: str, error: Exception) -> None:
        self.counters[f"{what}_errors"] += 1
        if what not in self._said:
            self._said.add(what)
            log.warning("cistern: a %s failed, more are only counted: %s", what, error)
