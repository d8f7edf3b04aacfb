"""Installs the client into a folder of the build tree and builds client/examples against it: package_test.py BUILD SOURCE CMAKE CXX.

Both ways that others link: find_package(cistern) and pkg-config. Nothing but the installed files may be needed."""
import os, pathlib, re, shutil, socket, subprocess, sys, unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/integration"))
import sanitizer

BUILD, SOURCE, CMAKE, CXX = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3], sys.argv[4]
ROOM = BUILD / "package_test"
PREFIX = ROOM / "prefix"


def call(*words, env=None, patience=200):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=patience, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def flags_of_build():
    """Sanitizers of the build have to be those of who links it."""
    text = (BUILD / "CMakeCache.txt").read_text()
    flags = re.search(r"^CMAKE_CXX_FLAGS:STRING=(.*)$", text, re.M).group(1)
    return [f for f in flags.split() if f.startswith("-fsanitize")]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(ROOM, ignore_errors=True)
        call(CMAKE, "--install", BUILD, "--prefix", PREFIX, "--component", "client")
        cls.lib = next(PREFIX.rglob("libcistern.so")).parent
        cls.env = {"LD_LIBRARY_PATH": str(cls.lib)}
        if "-fsanitize=thread" in flags_of_build():
            # The library keeps its definitions of absl's locks to itself, as all that is not of its headers; gRPC beside it needs them too.
            call(CXX, "-std=c++20", "-shared", "-fPIC", *flags_of_build(), f"-I{SOURCE}", SOURCE / "tests/sanitize/absl_mutex_tsan.cc", "-o",
                 ROOM / "absl_mutex_tsan.so")
            cls.env["LD_PRELOAD"] = str(ROOM / "absl_mutex_tsan.so")

    def test_builds_with_cmake(self):
        call(CMAKE, "-G", "Ninja", "-S", SOURCE / "client/examples", "-B", ROOM / "by_cmake", f"-DCMAKE_PREFIX_PATH={PREFIX}",
             f"-DCMAKE_CXX_COMPILER={CXX}", *(f"-DCMAKE_{language}_FLAGS=" + " ".join(flags_of_build()) for language in ("C", "CXX")))
        call(CMAKE, "--build", ROOM / "by_cmake")
        self.use(ROOM / "by_cmake/embed")
        self.use(ROOM / "by_cmake/embed_c")

    def test_builds_with_pkg_config_static_or_not(self):
        env = {"PKG_CONFIG_PATH": str(self.lib / "pkgconfig")}
        for extra in ([], ["--static"]):
            flags = call("pkg-config", "--cflags", "--libs", *extra, "cistern", env=env).split()
            out = ROOM / ("by_pkg_config" + "".join(extra))
            call(CXX, "-std=c++20", *flags_of_build(), SOURCE / "client/examples/embed.cc", "-o", out, *flags)
        self.use(out)

    def test_programs_are_a_component_of_their_own(self):
        call(CMAKE, "--install", BUILD, "--prefix", ROOM / "server", "--component", "server")
        self.assertEqual({file.name for file in (ROOM / "server/bin").iterdir()}, {"cistern", "cistern-node", "cistern-router"})
        self.assertIn("cistern-router", call(ROOM / "server/bin/cistern-router", "--help"))
        self.assertEqual(list(PREFIX.rglob("cistern-node")), [])

    def test_c_header_is_plain_c(self):
        """The C ABI's header, by a strict C11 compiler, against the installed files alone."""
        call("cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", PREFIX / "include", SOURCE / "client/c/abi_check.c")

    def test_exports_only_what_the_headers_declare(self):
        names = call("nm", "-DC", "--defined-only", self.lib / "libcistern.so").splitlines()
        names = [n.split(" ", 2)[2] for n in names if " A " not in n]
        declared = set(re.findall(r"\b(cistern_\w+)\(", (PREFIX / "include/cistern/cistern_c.h").read_text()))
        ours = {n.split("@")[0] for n in names if n.startswith("cistern_")}
        self.assertEqual(ours, declared)  # The C ABI: every function of its header, and no other.
        self.assertGreater(len(declared), 25)
        strangers = [n for n in names if not re.match(r"cistern::(Client|Chain|Hit|PageResultName|SerializeChain|ParseChain|NamedLayout|LayoutGroups|StorageForm)|cistern_", n)]
        self.assertEqual(strangers, [])
        self.assertFalse([n for n in names if "::Impl::" in n])
        self.assertGreater(len(names), 20)
        # What returns std::string carries a tag in its name, which a pattern in libcistern.map can miss.
        for name in ("cistern::Hit::owner", "cistern::Client::Counters", "cistern::SerializeChain", "cistern::ParseChain", "cistern::NamedLayout",
                     "cistern::LayoutGroups", "cistern::Client::PageParts", "cistern::Client::StoreTail", "cistern::Client::Recheck", "cistern::Client::PullerOf",
                     "cistern::StorageForm::Choose", "cistern::Hit::tokens"):
            self.assertTrue(any(n.startswith(name) for n in names), name)

    def test_headers_need_no_absl(self):
        for header in (PREFIX / "include/cistern").iterdir():
            self.assertNotRegex(header.read_text(), r'#include\s+["<](absl|google|grpc|core|transport)')

    def test_layouts_are_installed(self):
        names = {p.name for p in (SOURCE / "docs/layouts").glob("*.textproto")}
        self.assertEqual({p.name for p in (PREFIX / "share/cistern/layouts").glob("*.textproto")}, names)
        self.assertGreater(len(names), 20)

    def use(self, program):
        """Without a cluster: one clear line, 2. With one: the second turn hits everything the first stored."""
        env = {**os.environ, **self.env}
        gone = subprocess.run([str(program), f"127.0.0.1:{free_port()}"], capture_output=True, text=True, timeout=60, env=env)
        self.assertEqual(gone.returncode, 2, gone)
        self.assertEqual(len(gone.stderr.strip().splitlines()), 1, gone.stderr)
        if not all((BUILD / "bin" / name).exists() for name in ("cistern", "cistern-node", "cistern-router")):
            self.skipTest("no cluster binaries in this build")
        router, folder = f"127.0.0.1:{free_port()}", ROOM / "cluster"
        try:
            call(BUILD / "bin/cistern", "up", "--nodes", 1, "--ram", "64M", "--dir", folder, "--router", router, "--detach", "--json")
            out = call(program, router, env=env)
            self.assertIn("turn 0: 0 of 12 blocks were cached, 12 stored", out)
            self.assertIn("turn 1: 12 of 12 blocks were cached", out)
        finally:
            subprocess.run([str(BUILD / "bin/cistern"), "down", "--dir", str(folder)], capture_output=True, timeout=60)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    sanitizer.run(lambda: unittest.main(verbosity=2))
