"""`cistern calc`: no cluster. calc_test.py BIN_DIR [unittest flags]."""
import json, unittest

import sanitizer
from cli_test import Case, run


class Calculators(Case):
    REQUEST = ["--prefix", 8000, "--new", 2000, "--output", 500]

    def ok(self, *words):
        done = run("calc", *words, "--json")
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)

    def test_economics_prints_what_scripts_rely_on(self):
        own = self.ok("economics", "--model", "llama-3-70b", *self.REQUEST)
        self.assertAlmostEqual(own["attention_flops_saved_ratio"], 0.64, places=3)
        self.assertAlmostEqual(own["saving_ratio"], 1 - own["cost"] / own["cost_without_cache"], places=4)
        self.assertNotIn("per_day", own)
        pro = self.ok("economics", "--model", "deepseek-v4-pro", "--provider", "deepseek", "--requests-per-day", 100, *self.REQUEST)
        self.assertEqual((pro["break_even_reuses"], pro["currency"]), (1, "USD"))
        self.assertAlmostEqual(pro["cost_without_cache"], (10000 * 0.66 + 500 * 1.98) / 1e6, places=8)
        self.assertAlmostEqual(pro["per_day"]["saved"], pro["per_day"]["cost_without_cache"] - pro["per_day"]["cost"], places=6)
        never = self.ok("economics", "--model", "llama-3-8b", "--provider", "mistral", "--read", 1, *self.REQUEST)
        self.assertIsNone(never["break_even_reuses"])
        self.assertIn("never pays", run("calc", "economics", "--model", "llama-3-8b", "--provider", "mistral", "--read", 1, *self.REQUEST).stdout)
        listed = self.ok("economics", "--list")
        self.assertTrue(all(p["source"] and p["date"] for p in listed["providers"]))

    def test_economics_refuses_by_name(self):
        for wrong, says in ((["--prefix", 0, "--new", 1, "--output", 1], "--prefix"), (["--prefix", 1, "--new", -3, "--output", 1], "--new"),
                            (["--prefix", 1, "--new", 1, "--output", 10**30], "--output"), (["--prefix", 1, "--new", 1], "--output is missing"),
                            (["--new", 1, "--output", 1], "--prefix is missing"), (["--prefix", 1, "--output", 1], "--new is missing")):
            self.refused("calc", "economics", "--model", "llama-3-70b", *wrong, says=[says])
        self.refused("calc", "economics", "--model", "gpt-9", *self.REQUEST, says=["gpt-9", "llama-3-70b"])
        self.refused("calc", "economics", "--model", "llama-3-70b", "--provider", "me", *self.REQUEST, says=["'me'", "own-gpu"])
        self.refused("calc", "economics", *self.REQUEST, says=["--model"])
        self.refused("calc", "economics", "--model", "llama-3-70b", "--read", 0.1, *self.REQUEST, says=["--read", "own-gpu"])
        self.refused("calc", "sorcery", says=["calc sorcery"])
        self.refused("calc", says=["cistern calc --help"])

    def test_trace_names_broken_lines_and_goes_on(self):
        file = self.folder / "log.jsonl"
        good = [json.dumps(dict(timestamp=i * 10000, input_length=1024, output_length=1, hash_ids=ids)) for i, ids in enumerate(([1, 2], [1, 3], [1, 2]))]
        file.write_text("\n".join([good[0], "{broken", good[1], good[2]]) + "\n")
        done = run("calc", "trace", file, "--size", "50,100", "--ttl-s", "10,20", "--ram", "1G", "--nvme", "2G", "--json")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"{file} line 2 left out: ", done.stderr)
        log = json.loads(done.stdout)
        self.assertEqual((log["requests"], log["blocks"], log["unique_blocks"], log["broken_lines"]), (3, 6, 3, 1))
        self.assertAlmostEqual(log["ideal_hit_ratio"], 0.5, places=5)
        self.assertEqual([row["hit_ratio"] for row in log["ttl"]], [0.333333, 0.5])
        self.assertEqual([row["blocks"] for row in log["curve"]], [1, 3])
        self.assertEqual(log["curve"][1]["bytes"], 3 * 512 * 327680)
        self.assertAlmostEqual(log["curve"][1]["hit_ratio"], 0.5, places=5)
        self.assertGreater(log["curve"][1]["saved_usd_month"], 0)
        self.assertAlmostEqual(log["tiers"]["hit_ratio"], 0.5, places=5)
        self.assertIn("ideal hit ratio", run("calc", "trace", file).stdout)
        self.refused("calc", "trace", self.folder / "none", says=["none"])
        self.refused("calc", "trace", file, "--model", "gpt-9", says=["gpt-9"])
        self.refused("calc", "trace", file, "--provider", "mistral", says=["mistral", "own-gpu"])
        file.write_text("no request\n")
        none = run("calc", "trace", file, "--json")
        self.assertEqual(none.returncode, 2, none)
        self.assertIn("none of its lines (1) is a request", json.loads(none.stdout)["error"])
        file.write_text("")
        self.refused("calc", "trace", file, says=["empty"])


if __name__ == "__main__":
    sanitizer.run(lambda: unittest.main(verbosity=2))
