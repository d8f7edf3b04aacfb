"""`cistern sim` as scripts see it: sim_test.py BIN_DIR [unittest flags]. Needs no cluster; temporary folders."""
import json, unittest

from cli_test import Case, run


class Sim(Case):
    def trace(self):
        """Twenty talks of up to eight turns, a minute apart, and prompts in between that nobody asks for again."""
        file, lines = self.folder / "talks.jsonl", []
        for turn in range(8):
            for talk in range(20):
                ids = list(range(talk * 100, talk * 100 + 2 * (turn + 1)))
                once = list(range(10000 + 10 * (20 * turn + talk), 10004 + 10 * (20 * turn + talk)))
                for at, chain in ((0, ids), (1500, once)):
                    lines.append(dict(timestamp=(turn * 20 + talk) * 3000 + at, input_length=512 * len(chain), output_length=1, hash_ids=chain))
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return file

    def test_sim_eviction_tells_each_policy_at_each_size(self):
        plot = self.folder / "plot.svg"
        done = run("sim", "eviction", self.trace(), "--size", "5%,0.5", "--ttl", "30s,5m", "--plot", plot, "--json")
        self.assertEqual(done.returncode, 0, done)
        told = json.loads(done.stdout)
        names = ["lru", "slru", "fifo", "s3fifo", "lfu", "gdsf", "second-sighting", "lru2", "cistern", "optimum"]
        self.assertEqual([(r["policy"], r["size_fraction"]) for r in told["rows"]], [(n, s) for n in names for s in (.05, .5)])
        ratio = {(r["policy"], r["size_fraction"]): r["hit_ratio"] for r in told["rows"]}
        for (name, size), value in ratio.items():
            self.assertLessEqual(value, ratio["optimum", size], name)
        self.assertLessEqual(ratio["optimum", .5], told["ideal_hit_ratio"])
        self.assertEqual([(t["ttl_s"], t["ideal_share"]) for t in told["ttls"]], [(30, 0), (300, 1)])
        self.assertEqual(plot.read_text().count("<polyline"), len(names))
        self.assertNotIn("fifo", run("sim", "eviction", self.trace(), "--policy", "lru", "--size", "5%").stdout)

    def test_F65_sim_refuses_in_one_line(self):
        trace = self.trace()
        self.refused("sim", "eviction", trace, "--policy", "clairvoyant", says=["clairvoyant", "s3fifo"])
        self.refused("sim", "eviction", trace, "--size", "0%", says=["--size"])
        self.refused("sim", "eviction", trace, "--ttl", "soon", says=["--ttl"])
        self.refused("sim", "eviction", trace, "--plot", self.folder / "none" / "plot.svg", says=["plot.svg"])
        for flags in (("--nodes", 2), ("--flow", "node")):
            self.refused("sim", "eviction", trace, "--policy", "fifo", *flags, says=["fifo is no policy of nodes", "--nodes", "--flow", "slru"])
        self.refused("sim", "eviction", self.folder / "absent", says=["absent"])
        self.refused("sim", "sleep", trace)


if __name__ == "__main__":
    unittest.main()
