"""Judges histories: what client processes said of their calls (history_client.cc), against what a cache of immutable blocks may answer.

A cache may forget at any time, so a miss is always right. What it may not do, for the key (epoch, chain, page):
  wrong      give bytes that no store of this key wrote as a whole: another key's or epoch's, or of two stores mixed
  unwritten  give a page of a store that nobody called
  early      give a page of a store that was called only after the read had ended
  exists     say that a page exists when no other store of that key had been called by then
  late       end a call more than `slack` after its deadline
  lost       not end a call, unless its process was killed or is still to be waited for
  twice      end a call twice, or one that nobody called

Values are register-like: a page keeps the bytes of one store until it is forgotten. Which store's that is may differ between owners
after a change of the map, and two stores of one key may both be OK when the page was forgotten in between, so histories with those are
right. Every order of calls that is possible under these rules is accepted, every other one is named."""
import collections

Violation = collections.namedtuple("Violation", "kind call page text")
READS = ("fetch", "load")


def check(events, killed=(), slack_ns=0):
    """Violations in the events of all processes, in any order; `killed` are the clients (id >> 40) whose calls may be without an end."""
    calls, returns, found = {}, {}, []

    def say(kind, call, text, page=None):
        found.append(Violation(kind, call, page, text))

    for event in events:
        if event["event"] == "call":
            if event["id"] in calls:
                say("twice", event["id"], "called twice")
            calls[event["id"]] = event
    for event in events:
        if event["event"] != "return":
            continue
        if event["id"] in returns or event["id"] not in calls:
            say("twice", event["id"], "ended twice, or never called")
        returns[event["id"]] = event
    stores = collections.defaultdict(dict)  # Of a key: when each was called.
    for identity, call in calls.items():
        if call["kind"] == "store":
            stores[call["epoch"], call["chain"]][identity] = call["at"]
    for identity, call in calls.items():
        end = returns.get(identity)
        if end is None:
            if identity >> 40 not in killed:
                say("lost", identity, f"{call['kind']} never ended")
            continue
        over = end["at"] - call["deadline"]
        if over > slack_ns:
            say("late", identity, f"{call['kind']} ended {over / 1e6:.0f} ms after its deadline")
        written = stores[call["epoch"], call["chain"]]
        for page, (result, value) in enumerate(end["pages"]):
            if call["kind"] in READS and result == "OK":
                _check_read(say, identity, page, value, calls, written, end["at"])
            if call["kind"] == "store" and result == "EXISTS":
                if not any(at <= end["at"] for other, at in written.items() if other != identity):
                    say("exists", identity, "nobody else had stored it", page)
    return found


def _check_read(say, identity, page, value, calls, written, ended):
    if value == -1:
        say("wrong", identity, "bytes of no store of this key, or of several", page)
    elif value in written:
        if written[value] > ended:
            say("early", identity, f"store {value} was called after the read had ended", page)
    elif value in calls:
        say("wrong", identity, f"bytes of call {value}, which has another key or wrote nothing", page)
    else:
        say("unwritten", identity, f"nobody called store {value}", page)


def tally(events):
    """How much a history has seen, so that a run in which nothing happened does not pass for a good one."""
    kinds = {event["id"]: event["kind"] for event in events if event["event"] == "call"}
    count = collections.Counter(kinds.values())
    for event in events:
        if event["event"] == "return" and kinds.get(event["id"]) in READS:
            count["hit_pages"] += sum(result == "OK" for result, _ in event["pages"])
            count["other_pages"] += sum(result != "OK" for result, _ in event["pages"])
    return count
