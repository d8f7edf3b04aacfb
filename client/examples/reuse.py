"""How prompts are put together decides how much of them is found: reuse.py [ROUTER] [EXAMPLE...].

Each example plays an engine: of every prompt it loads what is cached, "computes" the rest and stores it, and prints how many of the
prompt's tokens it did not have to compute. Tokens are numbers here; a real engine has its tokenizer's.

chat     one session, whose prompt grows turn by turn: each turn finds all turns before it
system   many users behind one system prompt: the first pays for it
order    tools and documents before the user's words, and behind them: only what stands in front of all that differs is found again
agent    500 tokens of system prompt, 300 of tools, 2,000 of documents, 10 of the user's: static first, most of the prompt is found
"""
import itertools
import random
import sys

import cistern

BLOCK_TOKENS = 16
LAYOUT = cistern.Layout(model="example", block_tokens=BLOCK_TOKENS, part_bytes=4096, geometry="reuse")
_numbers = itertools.count(random.randrange(400_000))  # Where a run begins; a second one in the same cluster finds nothing of the first.


def words(count):
    """Tokens that nobody has used before."""
    first = next(_numbers) * 10_000
    return [first + i for i in range(count)]


class Engine:
    def __init__(self, client):
        self.client, self.asked, self.found = client, 0, 0

    def answer(self, prompt):
        """Gives the tokens of the prompt that were cached."""
        chain = self.client.chain(LAYOUT, prompt)
        memory = [bytearray(LAYOUT.block_bytes) for _ in range(len(chain))]
        report = self.client.fetch(chain, memory)
        cached = next((i for i, code in enumerate(report.codes) if code != cistern.PageResult.OK), len(chain))
        for block in range(cached, len(chain)):
            memory[block][:] = bytes([chain.hash(block)[0]]) * LAYOUT.block_bytes  # Stands for the KV of the block.
        self.client.store(chain, memory[cached:], first=cached)
        self.asked += len(prompt)
        self.found += cached * BLOCK_TOKENS
        return cached * BLOCK_TOKENS

    @property
    def ratio(self):
        return self.found / self.asked


def chat(client):
    engine, session = Engine(client), words(200)
    for turn in range(1, 7):
        session = session + words(120)  # The user's words; then the answer, which is part of the next prompt.
        cached = engine.answer(session)
        print(f"chat: turn {turn}: {cached} of {len(session)} tokens were cached")
        session = session + words(80)
    print(f"chat: hit ratio {engine.ratio:.2f}")


def system(client):
    engine, prompt = Engine(client), words(800)
    found = [engine.answer(prompt + words(50)) for _ in range(8)]
    print(f"system: the first user finds {found[0]} tokens of the shared 800, the others {min(found[1:])} to {max(found[1:])}")
    print(f"system: hit ratio {engine.ratio:.2f}")


def order(client):
    tools, document = words(400), words(1200)
    ratios = {}
    for name in ("static first", "user first"):
        engine = Engine(client)
        fixed = tools + document if name == "static first" else document + tools  # Other tokens: neither finds the other's.
        for _ in range(6):
            user = words(40)
            engine.answer(fixed + user if name == "static first" else user + fixed)
        ratios[name] = engine.ratio
    print("order: " + ", ".join(f"{name}: hit ratio {ratio:.2f}" for name, ratio in ratios.items()))


def agent(client):
    system_prompt, tools, documents = words(500), words(300), words(2000)
    engine = Engine(client)
    engine.answer(system_prompt + tools + documents + words(10))
    cached = engine.answer(system_prompt + tools + documents + words(10))
    print(f"agent: {cached} of 2810 tokens were cached, {cached / 2810:.1%}; 10 of the user's and a part-filled block were not")


EXAMPLES = {"chat": chat, "system": system, "order": order, "agent": agent}


def main(arguments):
    router = arguments[0] if arguments and ":" in arguments[0] else None
    names = [a for a in arguments if ":" not in a] or list(EXAMPLES)
    unknown = [name for name in names if name not in EXAMPLES]
    if unknown:
        sys.exit(f"there is no example {unknown[0]}; there are {', '.join(EXAMPLES)}")
    try:
        client = cistern.Client(router, wait_for_router=False)
    except cistern.Error as error:
        print(f"reuse: {error}; start a cluster with 'cistern up --detach'", file=sys.stderr)
        return 2
    with client:
        for name in names:
            EXAMPLES[name](client)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
