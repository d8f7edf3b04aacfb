"""The checker on planted violations: each kind is found, and what a cache may do is not called one."""
import random, unittest

from checker import check, tally

MS = 1_000_000


class History:
    """Builds events; each call takes 1 ms from where the clock stands."""

    def __init__(self):
        self.events, self.at, self.ids = [], 0, {}

    def call(self, kind, key=(1, 0), client=1, deadline=500):
        self.ids[client] = self.ids.get(client, 0) + 1
        identity = (client << 40) + self.ids[client]
        self.at += MS
        self.events.append(dict(event="call", id=identity, kind=kind, epoch=key[0], chain=key[1], at=self.at,
                                deadline=self.at + deadline * MS))
        return identity

    def end(self, identity, *pages, after=1):
        self.at += after * MS
        self.events.append(dict(event="return", id=identity, at=self.at, pages=list(pages)))
        return identity

    def store(self, *results, **where):
        return self.end(self.call("store", **where), *[(result, 0) for result in results])

    def read(self, *values, kind="fetch", **where):
        return self.end(self.call(kind, **where), *[("OK", value) if value else ("MISS", 0) for value in values])


class Checker(unittest.TestCase):
    def setUp(self):
        self.h = History()

    def kinds(self, **flags):
        return sorted(violation.kind for violation in check(self.h.events, **flags))

    def test_what_a_cache_may_do(self):
        first = self.h.store("OK", "OK")
        self.h.read(first, first)
        self.h.read(first, 0)  # Forgotten in part.
        second = self.h.store("OK", "EXISTS", client=2)
        self.h.read(second, first, kind="load")
        self.h.read(0, 0, key=(2, 0))
        unfinished = self.h.call("store", key=(1, 5), client=3)
        self.h.read(unfinished, key=(1, 5))  # It may have happened: its writer was killed.
        running = self.h.call("fetch")
        third = self.h.store("OK", "OK", client=2)
        self.h.end(running, ("OK", third), ("MISS", 0))  # A store and a read at the same time.
        self.assertEqual(self.kinds(killed={3}), [])
        self.assertEqual(tally(self.h.events)["hit_pages"], 7)

    def test_bytes_of_no_store_or_of_two(self):
        self.h.store("OK")
        self.h.read(-1)
        self.assertEqual(self.kinds(), ["wrong"])

    def test_bytes_of_another_chain_and_of_an_older_epoch(self):
        other = self.h.store("OK", key=(1, 7))
        self.h.read(other, key=(1, 8))
        self.h.store("OK", key=(2, 7))
        self.h.read(other, key=(2, 7))
        self.assertEqual(self.kinds(), ["wrong", "wrong"])

    def test_bytes_of_a_call_that_was_no_store(self):
        self.h.read(self.h.read(0))
        self.assertEqual(self.kinds(), ["wrong"])

    def test_bytes_that_nobody_stored(self):
        self.h.read(12345)
        self.assertEqual(self.kinds(), ["unwritten"])

    def test_bytes_from_the_future(self):
        read = self.h.call("fetch")
        self.h.end(read)
        store = self.h.store("OK")
        self.h.events[1]["pages"] = [("OK", store)]
        self.assertEqual(self.kinds(), ["early"])

    def test_exists_without_anybody(self):
        self.h.store("EXISTS")
        self.assertEqual(self.kinds(), ["exists"])
        self.h.store("OK", client=2)  # Called only afterwards.
        self.assertEqual(self.kinds(), ["exists"])

    def test_late_lost_and_twice(self):
        late = self.h.call("plan", deadline=500)
        self.h.end(late, after=700)
        self.assertEqual(self.kinds(), ["late"])
        self.assertEqual(self.kinds(slack_ns=300 * MS), [])
        self.h.call("fetch", client=4)
        self.assertEqual(self.kinds(slack_ns=300 * MS), ["lost"])
        self.assertEqual(self.kinds(slack_ns=300 * MS, killed={4}), [])
        self.h.end(late)
        self.h.end(99)
        self.assertEqual(self.kinds(slack_ns=300 * MS, killed={4}), ["twice", "twice"])

    def test_a_violation_in_a_long_right_history_is_found_wherever_it_is(self):
        for seed in range(50):
            rng, self.h, last = random.Random(seed), History(), {}
            for _ in range(300):
                key, client = (rng.randrange(1, 3), rng.randrange(4)), rng.randrange(1, 4)
                if rng.random() < .3:
                    last[key] = self.h.store("OK", key=key, client=client)
                else:
                    self.h.read(last.get(key, 0) if rng.random() < .8 else 0, key=key, client=client)
            self.assertEqual(self.kinds(), [], f"seed {seed}")
            hits = [e for e in self.h.events if e["event"] == "return" and e["pages"] == [("OK", e["pages"][0][1])] and e["pages"][0][1]]
            planted = rng.choice(hits)
            planted["pages"] = [("OK", rng.choice([-1, 7, planted["id"]]))]
            self.assertEqual(len(self.kinds()), 1, f"seed {seed}")


if __name__ == "__main__":
    unittest.main()
