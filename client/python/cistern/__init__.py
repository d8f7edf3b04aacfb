"""cistern: client of the distributed KV-cache tier.

    import cistern
    client = cistern.Client("127.0.0.1:7400")
    layout = cistern.Layout(model="m", block_tokens=16, part_bytes=65536, compute_digest=sha256_of_weights)  # model is no part of keys.
    chain = client.chain(layout, tokens)
    report = client.fetch(chain, pages)      # pages: one writable buffer a block
    client.store(chain, pages)

Errors are cistern.Error with a code; a miss is a value. cistern.aio has the same as coroutines.
"""
from importlib.metadata import version as _version

from ._cistern import Buffer, Chain, Hit, Layout, PageMap, PageSet, Report
from ._client import Client, Extra, ExtraKind, results
from ._errors import Code, DeadlineExceeded, Error, InvalidArgument, PageResult, Unavailable

__version__ = _version("cistern")  # The project's in CMakeLists.txt.
__all__ = [
    "Buffer", "Chain", "Client", "Code", "DeadlineExceeded", "Error", "Extra", "ExtraKind", "Hit", "InvalidArgument",
    "Layout", "PageMap", "PageResult", "PageSet", "Report", "Unavailable", "results",
]
