"""Reports of sanitizers in processes that a script starts: whatever dies or talks out of sight is a failure of the script.

Works when the options of a sanitizer are in the environment, as the test presets `asan` and `tsan` set them."""
import os, pathlib, shutil, sys, tempfile

NAMES = [name for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ]


def run(main):
    """Runs `main`, which ends by SystemExit; then the reports that anybody wrote, and 1 for them."""
    if not NAMES:
        main()
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-sanitizer-"))
    for name in NAMES:
        os.environ[name] += f":log_path={folder / 'report'}"
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    for report in sorted(folder.iterdir()):
        print(f"--- {report.name}\n{report.read_text(errors='replace')[:20000]}", file=sys.stderr)
        code = code or 1
    shutil.rmtree(folder)
    sys.exit(code)
