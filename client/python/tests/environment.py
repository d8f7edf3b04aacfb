"""Wheel and environments for the tests of the Python package, in the build folder. Standard library only."""
import hashlib, os, pathlib, re, subprocess, sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE.
INDEX_PATIENCE_S = 60


def skip(reason):
    print("skipped:", reason, flush=True)
    sys.exit(SKIPPED)


def call(*words, env=None, patience=800):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=patience, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, words))}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def sanitized(build):
    return "-fsanitize" in (build / "CMakeCache.txt").read_text()


def index_reached(python):
    """What keeps the package index from us, or nothing."""
    try:
        done = subprocess.run([str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--retries", "1",
                               "--dest", "/dev/null/none", "nanobind"], capture_output=True, text=True, timeout=INDEX_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {INDEX_PATIENCE_S} s"
    # It got as far as saving the file when the index answered.
    return None if done.returncode == 0 or "Not a directory" in done.stderr else (done.stderr.strip().splitlines() or ["no reason"])[-1]


def venv(folder):
    python = folder / "bin/python"
    if not python.exists():
        call("python3", "-m", "venv", folder)
    return python


def tree_digest(source, library):
    """Of everything that the wheel is made of."""
    sha = hashlib.sha256(library.read_bytes())
    for file in sorted(p for folder in ("client/python", "client/include") for p in (source / folder).rglob("*") if p.is_file()):
        if "__pycache__" not in file.parts and "tests" not in file.parts:
            sha.update(str(file.relative_to(source)).encode() + b"\0" + file.read_bytes())
    return sha.hexdigest()


def wheel(build, source):
    """Builds the wheel, unless it is there and nothing has changed."""
    out, library = build / "python", (build / "client/package/libcistern.so").resolve()
    stamp, digest = out / "wheel.sha256", tree_digest(source, library)
    found = sorted((out / "wheel").glob("cistern-*.whl"))
    if found and stamp.exists() and stamp.read_text() == digest:
        return found[-1]
    out.mkdir(exist_ok=True)
    printed = call(source / "deploy/build_wheel.sh", out / "wheel", env={"CISTERN_LIBRARY": str(library)})
    stamp.write_text(digest)
    return pathlib.Path(printed.strip().splitlines()[-1])


def install(python, file):
    """Puts the wheel into an environment that may have an older one of the same version."""
    call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", file)


def needs_of(file):
    """Requirements that the wheel names, without its extras."""
    meta = call(sys.executable, "-c", "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]);"
                "print(z.read(next(n for n in z.namelist() if n.endswith('METADATA'))).decode())", file)
    return [line for line in re.findall(r"^Requires-Dist: (.*)$", meta, re.M) if "extra ==" not in line]


# Packages whose own classes the plug-ins are tested against; without what their servers need. The folder is on the path of an
# environment that has torch.
ENGINES = ("lmcache==0.5.6", "sglang==0.5.23", "sortedcontainers==2.4.0")


def engines(build, python):
    """Folder with ENGINES, or nothing and why."""
    folder, stamp = build / "python/engines", build / "python/engines.txt"
    if stamp.exists() and stamp.read_text() == " ".join(ENGINES):
        return folder, None
    done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target", str(folder),
                           *ENGINES], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no reason"])[-1]
    stamp.write_text(" ".join(ENGINES))
    return folder, None
