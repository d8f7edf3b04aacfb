"""Loads layer by layer, and what may be stored while loads may still fail, without an engine: vllm_layers_test.py SOURCE, in an environment with vLLM."""
import threading, types, unittest

import torch

import cistern
from cistern.vllm import connector, encodings, groups, metadata, worker
from cistern.vllm.layers import StepLoads
from cistern.vllm.options import Options
from cistern.vllm.pages import PageMover
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1

import vllm_parts_test as parts

LAYERS, SPANS, PATIENCE_MS = 4, 2, 60_000


def group(block_tokens=parts.BLOCK):
    part = LAYERS // SPANS * block_tokens * 2 * parts.HEAD * 4
    layout = cistern.Layout(model="m", block_tokens=block_tokens, part_bytes=part, slices=parts.HEADS, spans=SPANS)
    return groups.Group(0, [f"layer.{i}" for i in range(LAYERS)], parts.BLOCK, block_tokens, parts.HEADS, parts.HEADS, 0, parts.HEAD, 2 * parts.HEAD,
                        torch.float32, None, encodings.NAMED[0], layout)


class Stored:
    """A client whose pages are those of `pages`, blocks `ids` of it; each range waits until it is let go."""

    def __init__(self, mover, ids, failed=(), found=None, held=()):
        self.mover, self.ids, self.failed, self.found = mover, ids, failed, len(ids) * mover.group.per_page if found is None else found
        self.gates = [threading.Event() for _ in range(SPANS)]
        for span, gate in enumerate(self.gates):
            if span not in held:
                gate.set()

    def plan(self, chain, **options):
        return parts.FakeHit(self.found)

    def load(self, hit, pages, first, span_first, span_count, **options):
        assert span_count == 1
        assert self.gates[span_first].wait(PATIENCE_MS / 1e3)
        whole = bytearray(len(self.ids) * self.mover.page_bytes)
        self.mover.copy_out(self.ids, whole)
        g, out = self.mover.group, bytearray()
        part = g.layout.part_bytes
        for block in range(first, first + len(pages)):  # As stored: [block][head][range of layers].
            for head in range(g.heads):
                at = ((block * g.heads + head) * SPANS + span_first) * part
                out += whole[at:at + part]
        codes = [cistern.PageResult.CORRUPT if (span_first, first + i) in self.failed else cistern.PageResult.OK for i in range(len(pages))]
        for i, code in enumerate(codes):
            if code:
                step = len(out) // len(pages)
                out[i * step:(i + 1) * step] = b"\xff" * step  # What arrived is not what was stored.
        pages.copy_from(out)
        return types.SimpleNamespace(failed=[i for i, code in enumerate(codes) if code], codes=bytes(codes), bytes=len(out))


class Layers(unittest.TestCase):
    def setUp(self):
        self.stored = parts.tensors(LAYERS, blocks=12)
        for i, tensor in enumerate(self.stored):
            tensor[:] = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(i))
        self.mine = parts.tensors(LAYERS, blocks=12)

    def step(self, ids, block_tokens=parts.BLOCK, first=0, deadline_ms=PATIENCE_MS, **stored):
        mover = PageMover(group(block_tokens), self.mine)
        client = Stored(PageMover(group(block_tokens), self.stored), [2, 3, 4, 5, 6], **stored)
        step = StepLoads(mover, [metadata.Load(0, object(), first * mover.group.per_page, ids)], deadline_ms)
        thread = threading.Thread(target=step.run, args=(client,))
        thread.start()
        self.addCleanup(thread.join)
        for gate in client.gates:
            self.addCleanup(gate.set)
        return step, client, thread

    def same(self, layer, mine, stored):
        return torch.equal(self.mine[layer][mine], self.stored[layer][stored])

    def test_a_layer_is_there_while_later_ones_are_on_their_way(self):
        for block_tokens in (parts.BLOCK, 64):
            for tensor in self.mine:
                tensor[:] = 0
            step, client, thread = self.step([7, 9, 8], block_tokens, first=1, held={1})
            for layer in (0, 1):
                step.wait(layer)
                self.assertTrue(self.same(layer, [7, 9, 8], [3, 4, 5]))
            self.assertFalse(self.mine[2].any() or self.mine[3].any())
            client.gates[1].set()
            for layer in (2, 3):
                step.wait(layer)
                self.assertTrue(self.same(layer, [7, 9, 8], [3, 4, 5]))
            self.assertEqual(step.finish(), (set(), True))
            for tensor in self.mine:
                self.assertFalse(tensor[[0, 1, 2, 3, 4, 5, 6, 10, 11]].any())
            thread.join()

    def test_F51_no_byte_of_a_part_that_failed_reaches_a_page(self):
        for block_tokens, failed in ((parts.BLOCK, {(0, 1)}), (64, {(0, 2)})):
            for tensor in self.mine:
                tensor[:] = 5
            step, _, thread = self.step([7, 9, 8], block_tokens, failed=failed)
            for layer in range(LAYERS):
                step.wait(layer)
            self.assertEqual(step.finish(), ({9}, True))
            thread.join()
            self.assertEqual(step.codes, [cistern.PageResult.CORRUPT])
            for layer in range(LAYERS):
                self.assertTrue(self.same(layer, [7, 8], [2, 4]))
                self.assertTrue((self.mine[layer][9] == 5).all())

    def test_a_part_that_fails_late_fails_its_block(self):
        step, _, thread = self.step([7, 9, 8], failed={(1, 2)})
        for layer in range(LAYERS):
            step.wait(layer)
        self.assertEqual(step.finish(), ({8}, True))
        thread.join()

    def test_what_a_hit_has_lost_has_failed(self):
        step, _, thread = self.step([7, 9, 8], found=2)
        for layer in range(LAYERS):
            step.wait(layer)
        self.assertEqual(step.finish(), ({8}, True))
        self.assertTrue(self.same(3, [7, 9], [2, 3]))
        thread.join()

    def test_a_late_range_fails_and_touches_nothing_afterwards(self):
        step, client, thread = self.step([7, 9, 8], deadline_ms=20, held={1})
        for layer in range(LAYERS):
            step.wait(layer)
        self.assertEqual(step.finish(), ({7, 8, 9}, True))
        for tensor in self.mine:
            tensor[:] = 5  # The pages are another request's by now.
        client.gates[1].set()
        thread.join()
        for tensor in self.mine:
            self.assertTrue((tensor == 5).all())

    def test_whatever_goes_wrong_is_a_miss(self):
        step, client, thread = self.step([7, 9], held={0})
        client.mover = None
        client.gates[0].set()
        for layer in range(LAYERS):
            step.wait(layer)
        self.assertEqual(step.finish(), ({7, 9}, True))
        thread.join()

    def worker(self, client, **options):
        made = worker.WorkerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x", load_async=False, **options))
        made.register({f"layer.{i}": tensor for i, tensor in enumerate(self.mine)})
        self.addCleanup(made.shutdown)
        return made

    def test_a_model_that_skips_a_layer_is_told_that_all_failed(self):
        mover = PageMover(group(), self.stored)
        made = self.worker(Stored(mover, [2, 3, 4, 5, 6]), layerwise=True)
        plan = metadata.StepPlan(loads={"r": [metadata.Load(0, object(), 0, [7, 9])]}, number=1)
        made.start_loads(plan, False)
        for layer in (0, 1, 3):
            made.wait_layer(f"layer.{layer}")
        made.wait_layer("another.0")
        with self.assertLogs("vllm.cistern"):
            made.end_step(plan)
        self.assertEqual((made.take_bad_blocks(), made.take_steps_loaded()), ({7, 9}, {1}))
        self.assertEqual(made.take_counters()["layers_not_asked"], 1)
        made._session.client = types.SimpleNamespace(fetch=lambda chain, pages, **options: types.SimpleNamespace(failed=[], codes=b"\0\0", bytes=1))
        made.start_loads(plan, False)  # Whole from now on.
        made.end_step(plan)
        self.assertEqual((made.take_bad_blocks(), made.take_counters()["loaded_blocks"]), (set(), 2))

    def test_what_a_step_computed_from_pages_that_failed_is_not_stored(self):
        for layerwise in (False, True):
            for failed in (True, False):
                client = Stored(PageMover(group(), self.stored), [2, 3, 4, 5, 6], failed={(0, 1)} if failed else ())
                stored = []
                client.fetch = lambda chain, pages, **options: types.SimpleNamespace(
                    failed=[1] if failed else [], codes=bytes([0, cistern.PageResult.CORRUPT if failed else 0]), bytes=1)
                client.allocate = lambda nbytes: None
                client.store = lambda chain, pages, **options: stored.append(chain) or types.SimpleNamespace(failed=[], codes=b"\0", bytes=1, ok_pages=1)
                made = self.worker(client, layerwise=layerwise)
                plan = metadata.StepPlan(loads={"r": [metadata.Load(0, object(), 0, [7, 9])]}, saves=[metadata.Save(0, "chain", 2, [8])], number=1)
                made.start_loads(plan, False)
                for layer in range(LAYERS):
                    made.wait_layer(f"layer.{layer}")
                made.end_step(plan)
                self.assertEqual(made.take_bad_blocks(), {9} if failed else set())
                made.end_step(metadata.StepPlan(saves=[metadata.Save(0, "next", 2, [8])]))
                made.shutdown()
                self.assertEqual(stored, ["next"] if failed else ["chain", "next"], (layerwise, failed))


class Holding(unittest.TestCase):
    def side(self, ranks):
        made, _ = parts.side(cached=2, load_async=False)
        made._ranks = ranks
        one = parts.request(600)
        self.assertEqual(made.match(one, 0), (256, False))
        made.allocated(one, ([11, 12, 13, 14, 15],), 256)
        return made

    def step(self, made, cached=None):
        if cached is None:
            return made.plan_step(parts.step(new=[("r", 256, ([11, 12, 13, 14, 15],))], scheduled={"r": 344}))
        return made.plan_step(parts.step(cached=[("r", cached, None, False)], scheduled={"r": 1 if cached == 600 else 600 - cached}))

    def test_ranks_store_nothing_until_all_loads_are_known_to_have_worked(self):
        made = self.side(ranks=2)
        plan = self.step(made)
        self.assertEqual((plan.number, plan.saves), (1, []))
        self.assertEqual(self.step(made, 600).saves, [])  # The engine runs ahead of what it has been told.
        made.loaded({1})
        self.assertEqual([(s.first, s.block_ids) for s in self.step(made, 600).saves], [(2, [13, 14])])

    def test_a_rank_of_its_own_sees_for_itself_but_only_in_that_step(self):
        made = self.side(ranks=1)
        self.assertEqual([(s.first, s.block_ids) for s in self.step(made).saves], [(2, [13, 14])])
        other = parts.request(300, "s")
        made.match(other, 0)
        ahead = made.plan_step(parts.step(new=[("s", 0, ([1, 2, 3],))], scheduled={"s": 300}))
        self.assertEqual((ahead.number, ahead.saves), (0, []))  # It may share pages with the one that loaded.

    def test_blocks_that_are_computed_anew_are_stored_anew(self):
        made = self.side(ranks=2)
        self.step(made)
        made.loaded({1})
        plan = self.step(made, 128)  # The second block had failed.
        self.assertEqual([(s.first, s.block_ids) for s in plan.saves], [(1, [12, 13, 14])])


class Sharing(unittest.TestCase):
    def test_ranks_with_the_same_heads_take_loads_from_each_other_and_say_so(self):
        for shared in (False, True):
            asked, counted = [], iter(({"client_share_parts_total": 3, "client_share_failed_total": 0}, {"client_share_parts_total": 7, "client_share_failed_total": 1}))

            def load(*words, host_shared, **options):
                asked.append(host_shared)
                return types.SimpleNamespace(failed=[], codes=b"\0", bytes=1)
            client = types.SimpleNamespace(fetch=load, load=load, plan=lambda chain, **options: parts.FakeHit(9), release=lambda hit: None,
                                           counters=lambda: next(counted))
            mine = parts.group()
            mine.shared = shared
            made = worker.WorkerSide(types.SimpleNamespace(client=client), [mine], Options(routers="x"))
            made._movers = [PageMover(mine, parts.tensors(blocks=12))]
            made._load_request("r", [metadata.Load(0, object(), 0, [3])])
            if shared:
                with self.assertLogs("vllm.cistern", "WARNING"):
                    made._load_request("r", [metadata.Load(0, object(), 1, [4])])
            else:
                made._load_request("r", [metadata.Load(0, object(), 1, [4])])
            self.assertEqual(asked, [shared, shared])
            self.assertEqual(made.take_counters().get("share_parts", 0), 7 if shared else 0)


class Allowed(unittest.TestCase):
    def test_real_class_says_what_it_needs(self):
        made = connector.CisternConnector
        self.assertTrue(issubclass(made, KVConnectorBase_V1))
        self.assertIsNot(made.requires_piecewise_for_cudagraph.__func__, KVConnectorBase_V1.requires_piecewise_for_cudagraph.__func__)
        self.assertTrue(made.requires_piecewise_for_cudagraph({"layerwise": True}))
        self.assertFalse(made.requires_piecewise_for_cudagraph({}))
        meta = metadata.StepsLoaded({1}).aggregate(metadata.StepsLoaded({2}))
        self.assertEqual(meta.numbers, {1, 2})

    def test_refused_where_it_cannot_be(self):
        config = types.SimpleNamespace(speculative_config=None)
        groups.refuse_layerwise(config, [group()], Options(load_async=False))
        for config, count, load_async, word in ((config, 1, True, "load_async"), (config, 2, False, "2 KV cache groups"),
                                                (types.SimpleNamespace(speculative_config=object()), 1, False, "draft")):
            with self.assertRaisesRegex(ValueError, word):
                groups.refuse_layerwise(config, [group()] * count, Options(load_async=load_async))

    def test_ranges_are_at_least_as_many_as_asked_for(self):
        self.assertEqual([groups._spans(12, 64 << 10, least) for least in (0, 1, 3, 5, 99)], [1, 1, 3, 6, 12])


if __name__ == "__main__":
    unittest.main(verbosity=2)
