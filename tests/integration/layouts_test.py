"""Layouts of several groups on real clusters: ranks of other widths, stages, retention, reasons of misses."""
import json, pathlib, unittest

import harness
from harness import BIN, Case, run


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


if __name__ == "__main__":
    harness.main()
