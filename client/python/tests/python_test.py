"""Builds the wheel, installs it into a clean environment and runs SCRIPTS there: python_test.py BUILD SOURCE."""
import pathlib, shutil, subprocess, sys

import environment

SCRIPTS = ("client_test.py", "ends_test.py", "keyed_test.py", "mooncake_test.py", "refusals_test.py", "reports_test.py")


def main():
    build, source = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if environment.sanitized(build):
        environment.skip("a sanitizer's library cannot be loaded into a plain Python; the facade's own tests run under it")
    tools = environment.venv(build / "python/tools")
    if why := environment.index_reached(tools):
        environment.skip(f"the package index cannot be reached: {why}")
    file = environment.wheel(build, source)
    if needs := environment.needs_of(file):
        raise SystemExit(f"{file.name} needs {needs}; numpy and all else is optional")
    shutil.rmtree(build / "python/venv", ignore_errors=True)
    python = environment.venv(build / "python/venv")
    environment.install(python, file)
    # Clean: the package must import without numpy, which only one test wants.
    environment.call(python, "-c", "import cistern, cistern.aio, sys; assert 'numpy' not in sys.modules")
    version = environment.call(python, "-c", "import cistern; print(cistern.__version__)").strip()
    if f"project(cistern VERSION {version} " not in (source / "CMakeLists.txt").read_text():
        raise SystemExit(f"the package says version {version}, CMakeLists.txt another one")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"], check=False)
    codes = [subprocess.run([str(python), "-B", str(source / "client/python/tests" / script), str(build / "bin"), str(build / "tests")]).returncode
             for script in SCRIPTS]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
