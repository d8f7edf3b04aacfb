"""What the binding refuses, and says about it, against a real cluster: refusals_test.py BIN_DIR TESTS_DIR, by an interpreter that has
cistern installed."""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tests/integration"))
import harness

import cistern
from cistern import _cistern


def layout(**changes):
    return cistern.Layout(**(dict(model="t", block_tokens=16, part_bytes=64) | changes))


class Refusals(harness.Case):
    nodes, ram = 1, "64M"

    def setUp(self):
        super().setUp()
        self.up()
        self.client = cistern.Client(self.router)
        self.addCleanup(self.client.close)

    def test_memory_in_another_order_is_refused(self):
        """Fortran's order would come back transposed, pointers as numbers."""
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed here; it is optional")
        small = self.client.chain(layout(), range(16))
        square = numpy.arange(16, dtype=numpy.int32).reshape(4, 4)
        for wrong in (numpy.asfortranarray(square), square.T, numpy.array([None] * 8, dtype=object),
                      numpy.zeros(4, dtype=[("number", "i8"), ("any", "O")])):
            for call in (self.client.store, self.client.fetch):
                with self.assertRaisesRegex(cistern.InvalidArgument, "C order|Python objects"):
                    call(small, [wrong])
        for fine in (square, numpy.zeros(4, dtype=[("On", "i8"), ("n", "i8")]), numpy.zeros(8, dtype="datetime64[s]")):
            self.assertTrue(self.client.store(small, [fine]))

    def test_odd_numbers_are_named(self):
        for call in (lambda: self.client.chain(layout(), set(range(16))), lambda: self.client.chain(layout(), dict.fromkeys(range(16))),
                     lambda: self.client.chain(layout(), range(16), [(1, -1, 0, b"x")]), lambda: _cistern.page_result_name(256),
                     lambda: _cistern.page_result_name(-1)):
            with self.assertRaises(cistern.InvalidArgument):
                call()
        pages = cistern.PageMap([memoryview(bytearray(128)).cast("B", (2, 1, 64))])
        for block in (-1, 2, 2**63, -2**70):
            with self.assertRaises(IndexError):
                pages.pages([block])
        with self.assertRaises(cistern.InvalidArgument):
            pages.pages(["x"])

    def test_model_alone_separates_nothing(self):
        """As the documentation of Layout says."""
        key = lambda **fields: self.client.chain(layout(**fields), range(16)).hash(0)
        self.assertEqual(key(model="one"), key(model="other"))
        self.assertNotEqual(key(model="one"), key(model="other", compute_digest=bytes(31) + b"1"))
        self.assertIn("compute_digest", cistern.Layout.__doc__)


if __name__ == "__main__":
    harness.main()
