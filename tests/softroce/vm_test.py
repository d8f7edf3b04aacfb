#!/usr/bin/env python3
"""What vm.py starts ends with it, however it ends."""

import os
import pathlib
import select
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 60
STARTER = "import os, vm; child = vm.spawn(['cat'], stdin=0, stdout=1); os.write(1, b'up\\n'); child.wait()"


class Spawn(unittest.TestCase):
    def test_a_child_does_not_outlive_a_killed_parent(self):
        wait_in, wait_out = os.pipe()  # The child reads it for ever...
        out_in, out_out = os.pipe()  # ...and holds the end of this one for as long as it lives.
        parent = subprocess.Popen([sys.executable, "-B", "-c", STARTER], stdin=wait_in, stdout=out_out, cwd=HERE)
        os.close(wait_in)
        os.close(out_out)
        try:
            self.assertEqual(os.read(out_in, 3), b"up\n")
            parent.kill()
            parent.wait()
            self.assertTrue(select.select([out_in], [], [], PATIENCE_S)[0], "the child is still there")
            self.assertEqual(os.read(out_in, 1), b"")
        finally:
            os.close(wait_out)
            os.close(out_in)


if __name__ == "__main__":
    unittest.main()
