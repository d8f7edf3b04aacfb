"""The connector's parts without an engine or a cluster, in an environment with vLLM: vllm_parts_test.py SOURCE."""
import json, os, pathlib, re, sys, types, unittest

import torch

import cistern
from cistern.vllm import encodings, groups, metadata, scheduler, stats, worker
from cistern.vllm.options import Options
from cistern.vllm.pages import PageMover

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
BLOCK, HEADS, HEAD = 128, 2, 64


def group(block_tokens=BLOCK, layers=3, window=None, encoding=encodings.NAMED[0], dtype=torch.float32):
    part = layers * block_tokens * 2 * HEAD * dtype.itemsize
    layout = cistern.Layout(model="m", block_tokens=block_tokens, part_bytes=part, slices=HEADS)
    return groups.Group(0, [f"layer.{i}" for i in range(layers)], BLOCK, block_tokens, HEADS, HEADS, 0, HEAD, 2 * HEAD, dtype, window, encoding, layout)


def tensors(layers=3, blocks=6, dtype=torch.float32):
    return [torch.zeros(blocks, HEADS, BLOCK, 2 * HEAD, dtype=dtype) for _ in range(layers)]


class Configuration(unittest.TestCase):
    def test_options_name_what_is_wrong(self):
        os.environ.pop("CISTERN_ROUTER", None)
        self.assertEqual(Options.from_extra({}).routers, "127.0.0.1:7400")
        for extra, word in (({"lod_async": True}, "lod_async"), ({"load_async": 1}, "load_async"), ({"block_tokens": -1}, "block_tokens"),
                            ({"routers": 7}, "routers")):
            with self.assertRaisesRegex(ValueError, word):
                Options.from_extra(extra)

    def test_guide_shows_a_configuration_that_is_taken(self):
        text = (SOURCE / "docs/guides/vllm.md").read_text()
        shown = [json.loads(m) for m in re.findall(r"--kv-transfer-config '(\{.*?\})'", text, re.S)]
        self.assertTrue(shown)
        for config in shown:
            self.assertEqual((config["kv_connector"], config["kv_connector_module_path"]), ("CisternConnector", "cistern.vllm"))
            self.assertEqual(config["kv_load_failure_policy"], "recompute")
            Options.from_extra(config["kv_connector_extra_config"])
        for name in re.findall(r"^\| `(\w+)` \|", text, re.M):
            self.assertTrue(hasattr(Options(), name), name)

    def test_heads_are_cut_by_rank_or_not_at_all(self):
        parallel = lambda tp, rank: types.SimpleNamespace(tensor_parallel_size=tp, rank=rank)
        self.assertEqual(groups._head_slices("g", 2, 4, parallel(2, 1)), (4, 2))
        self.assertEqual(groups._head_slices("g", 4, 4, parallel(1, 0)), (4, 0))
        self.assertEqual(groups._head_slices("g", 1, 2, parallel(4, 3)), (2, 1))
        with self.assertRaisesRegex(ValueError, "cuts through heads"):
            groups._head_slices("g", 3, 4, parallel(2, 0))

    def test_parts_stay_within_what_is_taken(self):
        self.assertEqual(groups._spans(80, 64 << 10), 2)
        self.assertEqual(groups._spans(4, 64 << 10), 1)
        with self.assertRaisesRegex(ValueError, "do not divide"):
            groups._spans(1, 5 << 20)


class Pages(unittest.TestCase):
    def test_the_engines_own_operation_proves_the_encoding(self):
        for dtype in (torch.float32, torch.bfloat16):
            found = encodings.probe_cpu(dtype, "auto", BLOCK, HEADS, HEAD, 2 * HEAD)
            self.assertTrue(found.name in [e.name for e in encodings.NAMED] or found.views is None, found)
        self.assertIsNone(encodings.probe_cpu(torch.float32, "fp8", BLOCK, HEADS, HEAD, 2 * HEAD).views)

    def test_F52_every_named_encoding_is_told_from_the_others(self):
        key, value = (encodings.pattern(BLOCK, HEADS, HEAD, torch.float32, first) for first in (3, 101))
        for encoding in encodings.NAMED:
            pages = torch.zeros(2, HEADS, BLOCK, 2 * HEAD)
            k, v = encoding.views(pages, HEAD)
            k[0], v[0] = key.transpose(0, 1), value.transpose(0, 1)
            self.assertEqual([e.name for e in encodings.NAMED if encodings.fits(e, pages, key, value)], [encoding.name])

    def test_re_tiled_pages_come_back_in_place_and_alone(self):
        for encoding in encodings.NAMED:
            mover = PageMover(group(64, encoding=encoding), mine := tensors())
            for i, tensor in enumerate(mine):
                tensor[:] = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(i))
            want = [tensor.clone() for tensor in mine]
            memory = memoryview(bytearray(2 * mover.page_bytes))
            mover.copy_out([4, 2], memory)
            # As stored: [head][layer][K, V][token][element], 64 tokens a block; rows of K in the order of tokens.
            stored = torch.frombuffer(memory, dtype=torch.float32).view(2, 2, HEADS, 3, 2, 64, HEAD)
            k, v = encoding.views(want[1], HEAD)
            self.assertTrue(torch.equal(stored[0, 1, 1, 1, 0], k[4, 1, 64:]))
            self.assertTrue(torch.equal(stored[1, 0, 0, 1, 1], v[2, 0, :64]))
            for tensor in mine:
                tensor[4] = tensor[2] = 0
            mover.copy_in([4, 2], memory)
            for tensor, pattern in zip(mine, want):
                self.assertTrue(torch.equal(tensor, pattern), encoding.name)
            with self.assertRaises(IndexError):
                mover.copy_out([0], memoryview(bytearray(mover.page_bytes)))  # The engine's placeholder.

    def test_F52_self_test_refuses_what_does_not_come_back(self):
        for block_tokens in (BLOCK, 64):
            PageMover(group(block_tokens), mine := tensors()).self_test()
            self.assertFalse(any(tensor.any() for tensor in mine))
        # An encoding that reads K where V lies: what comes back is not what was there.
        wrong = encodings.Encoding("wrong", lambda pages, head: (pages[..., :head], pages[..., :head]))
        with self.assertRaisesRegex(ValueError, "do not come back"):
            PageMover(group(64, encoding=wrong), tensors()).self_test()

    def test_F55_shapes_that_are_not_the_layouts_are_refused(self):
        for bad in (tensors(dtype=torch.bfloat16), [t[:, :1] for t in tensors()], [t[..., :64] for t in tensors()]):
            with self.assertRaisesRegex(ValueError, "layer.0"):
                PageMover(group(), bad)
        with self.assertRaisesRegex(ValueError, "blocks only"):
            PageMover(group(), tensors(blocks=2)).self_test()


class FakeHit:
    def __init__(self, blocks):
        self.blocks = blocks


class FakeClient:
    """Counts what is asked of it; says that `cached` leading blocks are there."""

    def __init__(self, cached):
        self.cached, self.plans = cached, 0

    def chain(self, layout, tokens, extras):
        return types.SimpleNamespace(layout=layout, blocks=len(tokens) // layout.block_tokens)

    def extend(self, chain, tokens):
        return types.SimpleNamespace(layout=chain.layout, blocks=chain.blocks + len(tokens) // chain.layout.block_tokens)

    def plan(self, chain, deadline_ms):
        self.plans += 1
        return FakeHit(min(self.cached, chain.blocks))


def request(tokens=1000, name="r", **changes):
    return types.SimpleNamespace(**(dict(request_id=name, num_tokens=tokens, all_token_ids=list(range(tokens)), prompt_embeds=None, cache_salt=None,
                                         lora_request=None, mm_features=[], skip_reading_prefix_cache=False) | changes))


def step(new=(), cached=(), scheduled=None):
    blank = types.SimpleNamespace(req_ids=[c[0] for c in cached], num_computed_tokens=[c[1] for c in cached], new_block_ids=[c[2] for c in cached],
                                  resumed_req_ids={c[0] for c in cached if c[3]})
    return types.SimpleNamespace(scheduled_new_reqs=[types.SimpleNamespace(req_id=n[0], num_computed_tokens=n[1], block_ids=n[2]) for n in new],
                                 scheduled_cached_reqs=blank, num_scheduled_tokens=scheduled or {})


def side(cached=7, **options):
    client = FakeClient(cached)
    made = scheduler.SchedulerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x", **options))
    return made, client


class Scheduling(unittest.TestCase):
    def test_answers_in_whole_blocks_and_leaves_a_token(self):
        self.assertEqual(side()[0].match(request(1000), 0), (896, True))
        self.assertEqual(side()[0].match(request(896), 0), (768, True))
        self.assertEqual(side(cached=3)[0].match(request(1000), 0), (384, True))
        self.assertEqual(side(cached=3)[0].match(request(1000), 256), (128, True))
        self.assertEqual(side(cached=3)[0].match(request(1000), 384), (0, False))
        self.assertEqual(side(load_async=False)[0].match(request(1000), 0), (896, False))
        self.assertEqual(side()[0].match(request(100), 0), (0, False))
        nameless = types.SimpleNamespace(mm_position=types.SimpleNamespace(offset=0), identifier=None)
        for foreign in (dict(prompt_embeds=object()), dict(mm_features=[nameless]), dict(skip_reading_prefix_cache=True)):
            self.assertEqual(side()[0].match(request(1000, **foreign), 0), (0, False))

    def test_F50_asked_again_gives_the_same_answer_without_asking(self):
        made, client = side()
        one = request()
        self.assertEqual(made.match(one, 0), made.match(one, 0))
        self.assertEqual(client.plans, 1)
        client.cached = 2
        self.assertEqual(made.match(one, 0), (896, True))
        self.assertEqual(made.match(one, 128), (128, True))  # Another question.

    def test_a_dead_or_failing_cache_is_a_miss(self):
        made, client = side()
        made._session.client = None
        self.assertEqual(made.match(request(), 0), (0, False))
        made._session.client = client

        def broken(*args, **options):
            raise cistern.Unavailable(cistern.Code.UNAVAILABLE, "gone")
        client.plan = broken
        self.assertEqual(made.match(request(name="s"), 0), (0, False))
        self.assertEqual(made.counters["lookup_errors"], 1)

    def test_loads_name_the_engines_blocks_behind_the_local_ones(self):
        made, _ = side()
        one = request()
        made.match(one, 256)
        made.allocated(one, ([11, 12, 13, 14, 15, 16, 17, 18],), 640)
        plan = made.plan_step(step())
        self.assertEqual([(load.first, load.block_ids) for load in plan.loads["r"]], [(2, [13, 14, 15, 16, 17])])
        self.assertEqual(made.plan_step(step()).loads, {})

    def test_what_was_promised_is_always_loaded_or_said_to_have_failed(self):
        made, client = side()
        one = request()
        made.match(one, 256)
        made.use([group()])  # New weights between the answer and the blocks.
        made.allocated(one, ([11, 12, 13, 14, 15, 16, 17],), 640)
        self.assertEqual(made.plan_step(step()).loads["r"][0].block_ids, [13, 14, 15, 16, 17])
        made.match(one, 256)
        made.use([group()])

        def broken(*args, **options):
            raise RuntimeError("unforeseen")
        client.chain = client.plan = broken
        made.allocated(one, ([11, 12, 13, 14, 15, 16, 17],), 640)
        (load,) = made.plan_step(step()).loads["r"]
        self.assertIsNone(load.chain)
        self.assertEqual(made.match(request(name="s"), 0), (0, False))
        working = worker.WorkerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x"))
        working._movers = [PageMover(group(), tensors())]
        working._load_request("r", [load], tell=True)
        self.assertEqual((working.take_bad_blocks(), working.take_results()[0]), ({13, 14, 15, 16, 17}, {"r"}))

    def test_a_lease_that_ran_out_is_taken_again(self):
        made, client = side(lease_ttl_ms=1)
        one = request()
        made.match(one, 0)
        made._tracked["r"].answer.until = 0
        made.allocated(one, ([1, 2, 3, 4, 5, 6, 7],), 896)
        self.assertEqual((client.plans, made.counters["leases_renewed"]), (2, 1))

    def test_saves_whole_committed_blocks_once(self):
        made, _ = side(cached=0)
        one = request(300)
        made.match(one, 0)
        plan = made.plan_step(step(new=[("r", 0, ([5, 6, 7],))], scheduled={"r": 300}))
        self.assertEqual([(s.first, s.block_ids) for s in plan.saves], [(0, [5, 6])])
        # Drafts: 90 tokens are scheduled, but only 30 of them are known to stay.
        one.all_token_ids += list(range(30))
        plan = made.plan_step(step(cached=[("r", 300, None, False)], scheduled={"r": 90}))
        self.assertEqual(plan.saves, [])
        one.all_token_ids += list(range(60))
        plan = made.plan_step(step(cached=[("r", 390, ([8],), False)], scheduled={"r": 1}))
        self.assertEqual([(s.first, s.block_ids) for s in plan.saves], [(2, [7])])
        self.assertEqual(made.plan_step(step(cached=[("r", 391, None, False)], scheduled={"r": 1})).saves, [])
        # Preempted and resumed: all its blocks are new ones.
        plan = made.plan_step(step(cached=[("r", 0, ([21, 22, 23, 24],), True)], scheduled={"r": 390}))
        self.assertEqual([(s.first, s.block_ids) for s in plan.saves], [(0, [21, 22, 23])])
        made.finished("r")
        self.assertEqual(made.plan_step(step(cached=[("r", 391, None, False)], scheduled={"r": 1})).saves, [])

    def test_placeholders_of_a_window_are_neither_saved_nor_loaded(self):
        made, _ = side(cached=0)
        made.match(request(700), 0)
        plan = made.plan_step(step(new=[("r", 0, ([0, 0, 5, 6, 0, 7],))], scheduled={"r": 700}))
        self.assertEqual([(s.first, s.block_ids) for s in plan.saves], [(2, [5, 6])])
        windowed = group(window=256)
        self.assertEqual([windowed.first_needed(end) for end in (1, 2, 3, 7)], [0, 0, 1, 5])

    def test_F54_pages_that_nobody_finds_are_said_once(self):
        made, client = side(cached=0)
        made.match(request(300), 0)
        made.plan_step(step(new=[("r", 0, ([5, 6, 7],))], scheduled={"r": 300}))
        with self.assertLogs("vllm.cistern") as logged:
            for n in range(3 * scheduler.HITLESS_LOOKUPS_MAX):
                made.match(request(name=f"q{n}"), 0)
        self.assertEqual((len(logged.output), made.counters["hitless_alarms"]), (1, 1))
        self.assertIn("group 0: ", logged.output[0])
        other, client = side(cached=0)  # Stores nothing: nobody can be expected to find it.
        for n in range(2 * scheduler.HITLESS_LOOKUPS_MAX):
            other.match(request(name=f"q{n}"), 0)
        self.assertEqual(other.counters["hitless_alarms"], 0)

    def test_new_weights_are_new_keys(self):
        made, client = side()
        one = request()
        made.match(one, 0)
        client.cached = 0
        made.use([group()])
        self.assertEqual(made.match(one, 0), (0, False))


class Working(unittest.TestCase):
    def test_staging_is_bounded(self):
        client = types.SimpleNamespace(allocate=lambda nbytes: None)
        staging = worker.Staging(100)
        self.assertEqual(len(staging.take(client, 60)), 60)
        self.assertIsNone(staging.take(client, 60))
        staging.give_back(60)
        self.assertIsNotNone(staging.take(client, 100))

    def test_F51_exactly_the_failed_blocks_are_named(self):
        def answer(pages, first):
            of = {2: cistern.PageResult.CORRUPT, 5: cistern.PageResult.MISS}  # By block of the chain.
            codes = bytes(of.get(first + i, cistern.PageResult.OK) for i in range(len(pages)))
            return types.SimpleNamespace(failed=[i for i, code in enumerate(codes) if code], codes=codes, bytes=7)
        client = types.SimpleNamespace(
            fetch=lambda chain, pages, **options: answer(pages, 0), plan=lambda chain, **options: FakeHit(5),
            load=lambda hit, pages, first, **options: answer(pages, first), release=lambda hit: None)
        made = worker.WorkerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x"))
        made._movers = [PageMover(group(), tensors(blocks=12))]
        for first in (0, 1):  # The request's beginning in one call, the rest of one that begins here in two.
            made._load_request("r", [metadata.Load(0, object(), first, [3, 4, 5, 6, 7, 8][first:])], tell=True)
            self.assertEqual(made.take_bad_blocks(), {5, 8})  # One damaged, one that was gone.
            self.assertEqual(made.take_results(), ({"r"}, set()))
            counters = made.take_counters()
            self.assertEqual((counters["failed_pages_corrupt"], "failed_pages_miss" in counters), (1, False))

    def test_whatever_goes_wrong_is_a_miss(self):
        def fails(*words, **options):
            raise RuntimeError("unforeseen")
        client = types.SimpleNamespace(fetch=fails, plan=fails)
        made = worker.WorkerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x"))
        made._movers = [PageMover(group(), tensors())]
        for first in (0, 1):
            made._load_request("r", [metadata.Load(0, object(), first, [3, 4])], tell=True)
            self.assertEqual((made.take_bad_blocks(), made.take_results()), ({3, 4}, ({"r"}, set())))

    def test_saves_that_cannot_be_are_dropped_and_counted(self):
        client = types.SimpleNamespace(allocate=lambda nbytes: None)
        made = worker.WorkerSide(types.SimpleNamespace(client=client), [group()], Options(routers="x", staging_bytes=3 * 393_216))
        made._movers = [PageMover(group(), tensors())]
        save = lambda *ids: metadata.Save(0, None, 0, list(ids))
        made.start_saves(metadata.StepPlan(saves=[save(1, 2), save(3, 4), save(99), save(5)]))
        # The second has no room beside the first; the third names no block of the engine; the fourth fits.
        counters = made.take_counters()
        self.assertEqual((counters["dropped_blocks"], counters["save_errors"], made._saves.qsize()), (3, 1, 2))

    def test_memory_that_runs_out_costs_a_save_and_no_room(self):
        def none(nbytes):
            raise MemoryError
        made = worker.WorkerSide(types.SimpleNamespace(client=types.SimpleNamespace(allocate=none)), [group()], Options(routers="x", staging_bytes=393_216))
        made._movers = [PageMover(group(), tensors())]
        save = metadata.StepPlan(saves=[metadata.Save(0, None, 0, [1])])
        made.start_saves(save)
        self.assertEqual((made.take_counters()["dropped_blocks"], made._saves.qsize()), (1, 0))
        made._session.client.allocate = lambda nbytes: None
        made.start_saves(save)
        self.assertEqual(made._saves.qsize(), 1)

    def test_stats_add_up(self):
        one = stats.CisternStats(data={"a": 1})
        one.aggregate(stats.CisternStats(data={"a": 2, "b": 3}))
        self.assertEqual((one.reduce(), one.is_empty()), ({"a": 3, "b": 3}, False))
        one.reset()
        self.assertTrue(one.is_empty())


if __name__ == "__main__":
    unittest.main(verbosity=2)
