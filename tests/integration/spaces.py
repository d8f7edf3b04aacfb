"""A cluster and its clients in two network namespaces, so that the link between them can be cut. Needs root and iproute2."""
import os, secrets, subprocess

import harness
from harness import Case, free_port, run, wait_for


def cannot_make_namespaces():
    if os.geteuid() != 0:
        return "not root"
    try:
        done = run("ip", "netns", "add", "cistern-try")
    except OSError:
        return "no `ip` command"
    if done.returncode != 0:
        return f"no network namespaces: {done.stderr.strip()}"
    run("ip", "netns", "del", "cistern-try")
    return ""


class SpacesCase(Case):
    """Router and two nodes on one end of a veth pair, clients on the other, in another network namespace: `prefix=self.inside`."""

    def setUp(self):
        super().setUp()
        why_not = cannot_make_namespaces()
        if why_not:
            self.skipTest(f"two network namespaces: {why_not}")
        name = f"ci{os.getpid() % 100000}"
        self.space, self.link, subnet = name, f"{name}a", f"10.{secrets.randbelow(120) + 100}.{secrets.randbelow(250)}"
        self.here, self.there = f"{subnet}.1", f"{subnet}.2"
        # Not `ip netns exec` or `ip -n`: they mount, which a root folder that is no mount point (chroot) does not allow.
        self.inside = ("nsenter", f"--net=/run/netns/{self.space}")
        self.ip("netns", "add", self.space)
        self.addCleanup(run, "ip", "netns", "del", self.space)
        self.ip("link", "add", self.link, "type", "veth", "peer", "name", f"{name}b", "netns", self.space)
        self.addCleanup(run, "ip", "link", "del", self.link)
        self.ip("addr", "add", f"{self.here}/24", "dev", self.link)
        self.ip("link", "set", self.link, "up")
        self.ip("addr", "add", f"{self.there}/24", "dev", f"{name}b", prefix=self.inside)
        self.ip("link", "set", f"{name}b", "up", prefix=self.inside)
        self.start_processes()

    def ip(self, *words, prefix=()):
        done = run(*prefix, "ip", *words)
        self.assertEqual(done.returncode, 0, done)

    def start_processes(self):
        key = self.folder / "cluster.key"
        key.touch(0o600)
        key.write_text(secrets.token_hex(32) + "\n")
        self.router = f"{self.here}:{free_port(self.here)}"
        self.start("cistern-router", "--listen", self.router, "--data-dir", self.folder / "router", "--cluster-key", key)
        wait_for(lambda: run(harness.BIN / "cistern", "status", "--router", self.router).returncode == 0, "the router to answer")
        for i in (1, 2):
            self.start("cistern-node", "--listen", f"{self.here}:0", "--router", self.router, "--ram", "64M", "--node-id",
                       f"node-{i}", "--data-dir", self.folder / f"node-{i}", "--cluster-key", key)
        def all_active():
            nodes = self.cistern("status")["nodes"]
            return len(nodes) == 2 and all(node["state"] == "active" for node in nodes)
        wait_for(all_active, "both nodes to be active")

    def start(self, binary, *words):
        log = open(self.folder / f"{binary}-{len(list(self.folder.iterdir()))}.log", "w")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(harness.BIN / binary), *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   env=harness.clean_env())
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
