"""Layouts of several groups on real clusters: ranks of other widths, stages, retention, reasons of misses."""
import json, os, pathlib, shutil, unittest

import harness
from harness import Case, run


class Recut(Case):
    """What ranks of one width stored, ranks of another read; bytes equal to a cut straight from the model."""
    ram = "512M"

    def recut(self, layout, write, read, seed=1, **more):
        flags = [word for name, value in more.items() for word in (f"--{name}", value)]
        done = run(harness.TESTS / "recut", "--router", self.router, "--layout", layout, "--write", write, "--read", read,
                   "--seed", seed, *flags)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual((out["wrong_tensors"], out["failed_pages"]), (0, 0))
        self.assertGreater(out["bytes"], 0)
        return out

    def widths(self, layout, **more):
        self.up()
        seen = {read: self.recut(layout, "tp4", read, **more) for read in ("tp1", "tp2", "tp8")}
        self.assertEqual(len({out["parts"] for out in seen.values()}), 1, "each width reads every part")
        return seen

    def test_F07_llama_70b_written_by_4_read_by_1_2_8(self):
        self.widths("llama-3-70b")

    def test_F07_minimax_m3_where_eight_ranks_share_four_heads(self):
        seen = self.widths("minimax-m3")
        # Two ranks have each head, and all of them the index key.
        self.assertGreater(seen["tp8"]["bytes"], 2 * seen["tp1"]["bytes"])

    def test_F07_qwen3_next_with_its_state_in_three_runs(self):
        self.widths("qwen3-next")

    def test_F07_llama_70b_over_sockets(self):
        self.widths("llama-3-70b", transport="socket")

    def test_a_fetch_brings_history_and_tail_of_every_rank(self):
        self.widths("qwen3-next", fetch=1)
        self.recut("minimax-m3", "tp4", "tp8", fetch=1)

    def test_F07_two_stages_write_what_one_reads(self):
        self.up()
        shipped = (pathlib.Path(__file__).parents[2] / "docs/layouts/llama-3-70b.textproto").read_text()
        staged = self.folder / "staged.textproto"
        staged.write_text(shipped.replace("  slices: 8\n", "  slices: 8\n  span_ends: [40, 80]\n", 1))
        self.recut(staged, "pp0-40,40-80", "pp0-80", seed=2)
        self.recut(staged, "tp4pp0-40,40-80", "tp2pp0-40,40-80", seed=3)

    def test_latent_rows_that_all_ranks_hold_are_written_once_and_read_by_all(self):
        self.widths("deepseek-v3.2")

    def test_latent_rows_that_all_ranks_hold_leave_the_nodes_once_a_host(self):
        self.up()
        sent = []
        for more in ({}, {"host-share": f"recut-{os.getpid()}"}, {"host-share": f"recut-{os.getpid()}", "fetch": 1}):
            before = self.node_counters()["inline_bytes_total"]
            self.recut("deepseek-v3.2", "tp8", "tp8", transport="socket", **more)
            sent.append(self.node_counters()["inline_bytes_total"] - before)
        print("bytes sent to eight ranks that pull for themselves, that share loads, that share fetches:", sent)
        self.assertLess(max(sent[1:]) * 7, sent[0])

    def test_tails_that_all_ranks_hold_are_written_by_one(self):
        self.widths("deepseek-v4-pro")


class Ranks(Case):
    """One decision per named request: the facade's cache of hits, and its look again after allocation."""
    ram = "512M"
    layouts = ("qwen3-next", "deepseek-v3.2")

    def ranks(self, layout, *words):
        lines = harness.Lines(harness.TESTS / "ranks", "--router", self.router, "--layout", layout, "--scale", 512, *words)
        self.addCleanup(lines.stop)
        return lines

    def test_F50_eight_ranks_get_one_length_while_somebody_drops(self):
        self.up()
        for seed, layout in enumerate(self.layouts, 1):
            _, out = self.ranks(layout, "--rounds", 40, "--seed", seed).next("done")
            self.assertEqual((out["disagreed"], out["failed_stores"]), (0, 0), out)
            self.assertEqual((out["wrong_recheck"], out["anew"], out["kept_lost"]), (0, 0, 0), out)
            self.assertGreater(out["hits"], 10, out)
            self.assertGreater(out["drops"], 10, out)

    def test_F50_a_hit_whose_node_went_is_over_for_every_rank(self):
        self.up(nodes=1)
        for layout in self.layouts:
            ranks = self.ranks(layout, "--pause", 1)
            _, out = ranks.next("planned")
            self.assertEqual((out["disagreed"], out["hits"]), (0, 1), out)
            self.kill(self.node_pids["node-1"])
            ranks.say("")
            _, out = ranks.next("done")
            self.assertEqual((out["lost"], out["kept_lost"], out["wrong_recheck"]), (8, 0, 0), out)
            self.up(nodes=1)  # Starts again what is gone.


class FacadeCalls(Case):
    def test_storage_forms_and_breakpoints(self):
        self.up()
        done = run(harness.TESTS / "facade_calls", "--router", self.router)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        checks = json.loads(done.stdout)
        self.assertEqual([name for name, right in checks.items() if not right], [], done.stdout + done.stderr)
        self.assertGreater(len(checks), 12)


class TailsOnDisk(Case):
    """Windows and states outlive their node's RAM and its process."""

    def replay(self, file, layout, *words):
        out = self.cistern("replay", file, "--layout", layout, "--scale", 512, "--speed", "max", "--verify", *words)
        self.assertEqual(out["wrong_parts"], 0, out)
        return out

    def test_tails_hit_after_a_restart(self):
        for layout in ("gpt-oss-20b", "qwen3-next"):
            shutil.rmtree(self.folder / "c", ignore_errors=True)
            self.up("--nvme", "512M")
            file = self.trace(40)
            first = self.replay(file, layout, "--retention", "junctions")
            self.down()
            self.up("--nvme", "512M")
            again = self.replay(file, layout, "--retention", "junctions")
            self.assertGreaterEqual(again["hit_ratio"], 0.95, (first, again))
            tails = [g for g in again["groups"] if g["family"] in ("window", "state")]
            self.assertTrue(all(g["verified_parts"] > 0 for g in tails), again)
            self.down()
            found = [json.loads(run(harness.BIN / "cistern", "fsck", node["data_dir"], "--json").stdout) for node in self.cluster["nodes"]]
            self.assertTrue(all(report["clean"] for report in found), found)
            self.assertGreater(sum(report["tails"] for report in found), 0, found)


if __name__ == "__main__":
    harness.main()
