"""The endpoint for Prometheus of router and node: the figures of `cistern status`, by the same names."""
import pathlib, re, secrets, subprocess, urllib.request

import harness
from harness import Case, clean_env, free_port, run, wait_for

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "operations.md"


class Metrics(Case):
    def start(self, program, *words):
        process = subprocess.Popen([str(harness.BIN / program), *map(str, words)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=clean_env())
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def setUp(self):
        super().setUp()
        key = self.folder / "cluster.key"
        key.touch(0o600)
        key.write_text(secrets.token_hex(32) + "\n")
        self.pages = {room: f"127.0.0.1:{free_port()}" for room in ("router", "node")}
        self.start("cistern-router", "--listen", self.router, "--data-dir", self.folder / "router", "--cluster-key", key, "--metrics", self.pages["router"])
        self.node = self.start("cistern-node", "--router", self.router, "--data-dir", self.folder / "node", "--cluster-key", key, "--node-id", "node-1",
                               "--ram", "64M", "--nvme", "192M", "--shards", 1, "--metrics", self.pages["node"])
        def up():
            done = run(harness.BIN / "cistern", "status", "--router", self.router, "--json")
            return done.returncode == 0 and '"active"' in done.stdout
        wait_for(up, "the node to be active")

    def scrape(self, room):
        """{name: (kind, value)} of what has no label."""
        with urllib.request.urlopen(f"http://{self.pages[room]}/metrics", timeout=30) as answer:
            self.assertIn("text/plain", answer.headers["Content-Type"])
            text = answer.read().decode()
        kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        found = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, value = re.fullmatch(r"([a-zA-Z_]\w*)(?:\{[^}]*\})? (\S+)", line).groups()
            if name.startswith("exposer_"):
                continue  # The library's own.
            self.assertIn(name, kinds)
            if "{" not in line:
                self.assertNotIn(name, found, "a name twice")
                found[name] = (kinds[name], float(value))
        return found

    def figures(self, room):
        status = self.cistern("status")
        return status["router"]["counters"] if room == "router" else status["nodes"][0]["counters"]

    def test_F63_it_shows_what_status_shows(self):
        self.cistern("replay", self.trace(100), "--bytes-per-block", "16K")
        for room in self.pages:
            prefix = f"cistern_{room}_"
            own = {"router": {"epoch", "uptime_ms"}, "node": {"cpu_seconds_total"}}[room]
            before = self.figures(room)
            def same():  # A node's page may be half a second old.
                page, after = self.scrape(room), self.figures(room)
                # peer_transport_* is there only while there is such a peer, as status itself is.
                after = {name: value for name, value in after.items() if not name.startswith("peer_transport_")}
                if {name.removeprefix(prefix) for name in page if not name.startswith(prefix + "peer_transport_")} != set(after) | own:
                    return False
                for name, value in after.items():
                    kind, scraped = page[prefix + name]
                    self.assertEqual(kind, "counter" if name.endswith("_total") else "gauge")
                    if name.endswith("_total") and not before.get(name, 0) <= scraped <= value:
                        return False
                return True
            wait_for(same, f"the {room}'s page to agree with status")
        hits = self.scrape("node")["cistern_node_hit_blocks_total"]
        self.assertEqual(hits[1], self.figures("node")["hit_blocks_total"])
        self.assertGreater(hits[1], 0)

    def test_F63_counters_that_the_docs_name_are_there(self):
        self.cistern("replay", self.trace(20), "--bytes-per-block", "16K")
        text = DOCS.read_text()
        for room, heading in (("router", "| counter of the router |"), ("node", "| counter of a node |")):
            table = text[text.index(heading):].split("\n\n")[0]
            named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_]+)`", row.split("|")[1]) if not name.startswith("_")}
            self.assertGreater(len(named), 8)
            # Those of tenants and of HBM are there once there is one.
            expected = {f"cistern_{room}_{name}" for name in named if not name.startswith(("tenant_", "hbm_"))}
            wait_for(lambda: expected <= set(self.scrape(room)), f"the {room}'s page to have what the docs name")

    def test_a_taken_port_is_one_line(self):
        taken = run(harness.BIN / "cistern-node", "--router", self.router, "--data-dir", self.folder / "other", "--cluster-key",
                    self.folder / "cluster.key", "--ram", "16M", "--metrics", self.pages["router"])
        self.assertEqual(taken.returncode, 2, taken)
        self.assertIn(f"--metrics: cannot listen on {self.pages['router']}", taken.stderr.splitlines()[-1])


if __name__ == "__main__":
    harness.main()
